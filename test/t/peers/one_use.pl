# Copyright (c) 2026, zklock contributors
#
# A path has one use: it is a lock, a semaphore or a queue, has claims, or an election is held there; or it has
# somebody else's data. Functions refuse a path where another's nodes are, and leave these as they are. What they refuse
# where zklock's own are is in sql/one_use.sql; here others write there, or things happen meanwhile.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::Election;

use constant RECEIPTS => '/zklock-receipts';

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a');
my $shell = $zk->shell;
my $s     = $a->session;
my $r     = $a->session;
my $t     = $b->session;

# Calls by what they are of, for PATH
my %calls = (
	lock      => [ map { "$_('PATH')" } qw(zk_lock zk_lock_shared zk_try_lock zk_xact_lock) ],
	semaphore => [ "zk_semaphore_acquire('PATH', 1)", "zk_semaphore_acquire('PATH', 1, '0')" ],
	claim     => ["zk_claim('PATH', now())"],
	queue     => [
		"zk_queue_offer('PATH', 'x')", "zk_queue_peek('PATH')", "zk_queue_remove('PATH')", "zk_queue_take('PATH', '2s')",
		"zk_xact_queue_take('PATH', '2s')" ]);

# Tests: calls of this kind, or this one, are refused with a reason.
sub refused($session, $kind, $path, $why, $message = undef)
{
	$message //= qr/^ZooKeeper path "\Q$path\E" is in use for something else$/;
	foreach my $call (map { s/PATH/$path/r } @{ $calls{$kind} || [$kind] })
	{
		fails($session->try("SELECT $call"), '55006', "$call is refused", message => $message, detail => $why);
	}
	return;
}

# Tests: nobody else gets in here, and what is there stays.
sub keeps_out($path, $why, @kinds)
{
	my @before = sort $zk->children($path);
	foreach my $kind (@kinds) { refused($_, $kind, $path, $why) foreach $s, $t; }
	is_deeply([ sort $zk->children($path) ], \@before, 'what is there stays, and nothing comes');
	return;
}

sub claims($session, $path, $name) { is($session->query("SELECT zk_claim('$path', now())"), 't', $name); return; }
sub element($path) { return $s->query("SELECT convert_from(zk_queue_remove('$path'), 'UTF8')"); }

my $claims   = qr/^It has claims/;
my $children = qr/has or had children/;

subtest 'an element beside claims' => sub {
	claims($s, '/u/claim', 'a path has claims');
	$shell->create('/u/claim/qn-0000000000', data => 'x');
	keeps_out('/u/claim', $claims, 'queue');
	$shell->delete('/u/claim/qn-0000000000');
	claims($t, '/u/claim', 'claims go on');
	$s->query("SELECT zk_claim_reset('/u/claim')");
};

subtest 'a lock that is held when somebody writes a claim' => sub {
	$s->query("SELECT zk_lock('/u/both')");
	$shell->set('/u/both', $shell->get('/u/claim'));
	refused($t, "zk_lock('/u/both')", '/u/both', $claims);
	refused($t, 'claim', '/u/both', qr/children like those of a lock/);
	is($s->query("SELECT zk_unlock('/u/both')"), 't', 'its holder holds it');
};

subtest 'a queue that has data' => sub {
	$s->query("SELECT zk_queue_offer('/u/queue', 'x')");
	$shell->set('/u/queue', 'data of others');
	keeps_out('/u/queue', qr/not written by zk_claim/, 'claim');
	is(element('/u/queue'), 'x', 'the element is as it was');
	is($s->query("SELECT zk_queue_offer('/u/queue', 'y') IS NOT NULL"), 't', 'data of others do not matter to a queue');
	is($s->query("SELECT convert_from(zk_queue_take('/u/queue', '0'), 'UTF8')"), 'y', 'nor do they to its consumers');
};

subtest 'a semaphore below data of others' => sub {
	$shell->create('/u/data', data => 'x');
	is($s->query("SELECT zk_semaphore_acquire('/u/data', 1) AND zk_semaphore_release('/u/data')"), 't', 'they do not matter to it');
};

subtest 'the data of a queue are read before anything is taken, whatever happens meanwhile' => sub {
	$shell->create('/u/lost', data => $shell->get('/u/claim'));
	$shell->create('/u/lost/qn-0000000000', data => 'x');
	$proxy->lose_reply(op => 'getData', path => '^/u/lost$');
	refused($s, "zk_queue_take('/u/lost', '2s')", '/u/lost', $claims);
	is($shell->get('/u/lost/qn-0000000000'), 'x', 'the element stays when the answer is lost');
	$shell->delete('/u/lost/qn-0000000000');
};

subtest 'nodes of others keep elements out' => sub {
	# test/unit/test_element_name.c has all names.
	my %others = ('latch-0000000003' => qr/^It has candidates of an election/, leases => qr/^It has nodes of a lock or semaphore/);
	foreach my $node (sort keys %others)
	{
		$shell->create("/u/other/$node", ephemeral => 1, makepath => 1);
		keeps_out('/u/other', $others{$node}, 'queue');
		$shell->delete("/u/other/$node");
	}
	$shell->create('/u/other/latch');
	is($s->query("SELECT zk_queue_offer('/u/other', 'x') IS NOT NULL"), 't', 'other names do not');
	$shell->create('/u/other/n_0000000009');
	is(element('/u/other'), 'x', 'nor does anything where elements are');
	$shell->delete("/u/other/$_") foreach qw(latch n_0000000009);
	my $lock = $shell->create('/u/above/_c_00000000-0000-0000-0000-000000000001-lock-0000000000', makepath => 1);
	refused($s, "zk_queue_offer('/u/above/-lock-0', 'x')", '/u/above/-lock-0', qr/./, qr/below a lock or semaphore in use/);
	$shell->delete($lock);
};

subtest 'an election keeps all else out, of this server and of others' => sub {
	my @paths = ('/e/latch', '/e/support');
	my %below = ('/e/permits' => '/e/permits/leases', '/e/turns' => '/e/turns/locks');
	$r->query_start("SELECT zk_queue_take('/e/waited')");
	wait_until { $shell->exists('/e/waited') } 'somebody to wait at a queue';
	$a->set_conf('zklock.elections' => join(', ', '/e/latch, /e/support=zookeeper, /e/waited, /u/claim', sort values %below));
	foreach my $path (@paths)
	{
		my $election = Zklock::Election->new($zk, $path);
		$election->wait_state($a, 'elected');
		my @candidates = $zk->children($path);
		my ($why, $message) = (qr/"zklock.elections" has "\Q$path\E"/, qr/this server stands at an election there/);
		foreach my $place ($path, "$path/below")
		{
			refused($s, $_, $place, $why, $message) foreach sort keys %calls;
			refused($s, $_, $place, $why, $message) foreach "zk_lock_tree('$place/a', '/e')", "zk_claim_reset('$place')";
		}
		refused($t, $_, $path, qr/./) foreach qw(semaphore claim queue);
		$b->wait_value('SELECT count(*) FROM zk_locks', 0);
		is_deeply([ $zk->children($path) ], \@candidates, 'nothing is left there');
		is($s->query("SELECT zk_resign('$path')"), 't', 'the election goes on');
		is($s->query("SELECT zk_is_leader('$path')"), 't', 'and has its leader');
	}
	refused($t, 'claim', '/e/latch', $children);
	foreach my $semaphore (sort keys %below)
	{
		refused($s, $calls{semaphore}[0], $semaphore, qr/"zklock.elections" has "$below{$semaphore}"/, qr/stands at an election there/);
	}
	$a->wait_value("SELECT state FROM zk_elections WHERE path = '/u/claim'", 'failed');
	is_deeply([ $zk->children('/u/claim') ], [], 'it has no candidate where claims are');
	is($s->query("SELECT zk_lock('/e/latch2') AND zk_unlock('/e/latch2')"), 't', 'other paths can be locked');
	claims($s, '/e/latch3', 'have claims');
	is($s->query("SELECT zk_queue_offer('/e/latch4', 'x') IS NOT NULL"), 't', 'and be queues');
	fails($r->result, '55006', 'who waits at a queue when the election comes is told', detail => qr/candidates of an election/);
	$a->set_conf('zklock.elections' => '');
	$a->wait_value('SELECT count(*) FROM zk_elections', 0);
	wait_until { $s->try("SELECT zk_queue_offer('/e/latch', 'x')")->{ok} } 'the path to be free again';
	is(element($_), 'x', "$_ is a queue") foreach '/e/latch', '/e/latch4';
};

subtest 'data of others have no claims' => sub {
	my $foreign = qr/were not written by zk_claim/;
	# test/unit/test_claim_record.c has more.
	my %foreign = (lock => '{"server":"a","host":"h","port":5432,"pid":1}', long => 'x' x 100_000);
	foreach my $what (sort keys %foreign)
	{
		my $path = "/u/foreign/$what";
		$shell->create($path, data => $foreign{$what}, makepath => 1);
		refused($s, $_, $path, $foreign) foreach 'claim', "zk_last_claim('$path')", "zk_claim_reset('$path')";
		is($shell->get($path), $foreign{$what}, 'they are there');
		is($s->query("SELECT zk_lock('$path') AND zk_unlock('$path')"), 't', 'a lock does not mind them');
	}
	$shell->create('/u/foreign/none');
	claims($s, '/u/foreign/none', 'an empty node can be claimed');
	$shell->create('/u/foreign/bytes', hex => '00ff7b22');
	refused($s, 'claim', '/u/foreign/bytes', $foreign);
	$shell->create('/u/ephemeral', ephemeral => 1);
	refused($s, 'claim', '/u/ephemeral', qr/belongs to a ZooKeeper session/);
	is($s->try("SELECT zk_claim('/u/ephemeral/below', now())")->{sqlstate}, '42809', 'has nothing below it');
};

subtest 'that costs nothing where a path has no data' => sub {
	my $asked = sub ($sql, $name, %expected) {
		$proxy->reset_counts;
		$s->query($sql);
		wait_until { !$zk->children(RECEIPTS) } 'receipts to be deleted';
		is_deeply($proxy->asked, \%expected, $name);
	};
	$shell->create('/u/cheap');
	$asked->("SELECT zk_lock('/u/cheap') AND zk_unlock('/u/cheap')", 'a lock', create2 => 1, getChildren => 1, delete => 1);
	$s->query("SELECT zk_queue_offer('/u/cheap/queue', 'x')") foreach 1 .. 2;
	wait_until { !$zk->children(RECEIPTS) } 'receipts to be deleted';
	$asked->("SELECT zk_queue_offer('/u/cheap/queue', 'x')", 'an offer', exists => 1, delete => 1);
	$asked->("SELECT zk_queue_peek('/u/cheap/queue')", 'a look', sync => 1, getChildren => 1, getData => 1);
	is(element('/u/cheap/queue'), 'x', 'an element') foreach 1 .. 3;
};

Zklock::Server->assert_clean($zk, [ $a, $b ], RECEIPTS, '/e/latch', '/e/support', '/e/waited',
	'/e/permits/locks', '/e/permits/leases', '/e/turns/locks',
	map { "/u/$_" } qw(claim both queue lost other empty cheap/queue));
done_testing;
