# Copyright (c) 2026, zklock contributors
#
# A path has claims, or locks, or a semaphore, or somebody else's data: each function refuses
# one where another's nodes are.

use Zklock::Test;

my $zk = Zklock::ZooKeeper->standalone(container_check => 1000);
my $proxy = Zklock::Proxy->start($zk);
my $a = Zklock::Server->new('a', zookeeper => $zk);
my $b = Zklock::Server->new('b', zookeeper => $proxy->connect_string);
my $s = $a->session;
my $t = $b->session;
my $shell = $zk->shell;

sub refused
{
	my ($session, $sql, $path, $detail, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = $session->try("SELECT $sql");
	is($result->{sqlstate}, '55006', $name) or diag explain $result;
	is($result->{message}, "ZooKeeper path \"$path\" is in use for something else", 'by an error that says so');
	like($result->{detail}, $detail, 'and why');
	return;
}

sub claim { my ($path) = @_; return "zk_claim('$path', now())"; }

subtest 'a lock' => sub {
	$s->query("SELECT zk_lock('/u/lock')");
	refused($_, claim('/u/lock'), '/u/lock', qr/has or had children/, 'keeps claims out') foreach $s, $t;
	$s->query("SELECT zk_unlock('/u/lock')");
	refused($t, claim('/u/lock'), '/u/lock', qr/ZooKeeper may remove such a node/, 'and when it is released, for as long as its node is there');
	wait_until { !$shell->exists('/u/lock') } 'ZooKeeper to remove the container';
	is($t->query('SELECT ' . claim('/u/lock')), 't', 'then the path can be claimed');
};

subtest 'claims' => sub {
	is($s->query('SELECT ' . claim('/u/claim')), 't', 'a path has claims');
	my $both = qr/\bclaims\b.* cannot have the same path/;
	foreach my $function (qw(zk_lock zk_lock_shared zk_try_lock zk_xact_lock))
	{
		refused($_, "$function('/u/claim')", '/u/claim', $both, "they keep out $function") foreach $s, $t;
	}
	refused($s, "zk_semaphore_acquire('/u/claim', 1)", '/u/claim', $both, 'and semaphores');
	refused($t, "zk_semaphore_acquire('/u/claim', 1, '0')", '/u/claim', $both, 'whether or not they wait');
	is_deeply([ $zk->children('/u/claim') ], [], 'nothing is left there');
	is($t->query('SELECT ' . claim('/u/claim')), 't', 'claims go on');
};

subtest 'a lock that is held when somebody writes a claim' => sub {
	$s->query("SELECT zk_lock('/u/both')");
	$shell->set('/u/both', $shell->get('/u/claim'));
	$t->query_start("SELECT zk_lock('/u/both')");
	is($t->result->{sqlstate}, '55006', 'is not for others to wait for');
	refused($t, claim('/u/both'), '/u/both', qr/children like those of a lock/, 'nor can it be claimed');
	is($s->query("SELECT zk_unlock('/u/both')"), 't', 'its holder holds it');
};

subtest 'a semaphore' => sub {
	$s->query("SELECT zk_semaphore_acquire('/u/semaphore', 1)");
	refused($t, claim('/u/semaphore'), '/u/semaphore', qr/has or had children/, 'keeps claims out');
	my $result = $t->try('SELECT ' . claim('/u/semaphore/leases/0'));
	is($result->{sqlstate}, '55006', 'also below its leases') or diag explain $result;
	like($result->{message}, qr/lies below a lock or semaphore in use/, 'by an error that says so');
	is(scalar $zk->children('/u/semaphore/leases'), 1, 'where each would be a permit');
	$s->query("SELECT zk_semaphore_release('/u/semaphore')");
};

subtest 'an election' => sub {
	$a->set_conf('zklock.elections' => '/u/election, /u/claim');
	$a->wait_value("SELECT state FROM zk_elections WHERE path = '/u/election'", 'elected');
	$a->wait_value("SELECT state FROM zk_elections WHERE path = '/u/claim'", 'failed');
	is_deeply([ $zk->children('/u/claim') ], [], 'has no candidate where claims are');
	refused($t, claim('/u/election'), '/u/election', qr/has or had children/, 'keeps claims out');
	$a->set_conf('zklock.elections' => '');
	$a->wait_value('SELECT count(*) FROM zk_elections', 0);
};

subtest 'paths below each other' => sub {
	is($s->query('SELECT ' . claim($_)), 't', "$_ is claimed") foreach '/u/tree', '/u/tree/leaf', '/u/tree/leaf/leaf';
	is($t->query("SELECT zk_lock('/u/tree/lock')"), 't', 'a lock below claims');
	is($t->query('SELECT ' . claim($_)), 't', "$_ is claimed again") foreach '/u/tree', '/u/tree/leaf';
	$t->query("SELECT zk_unlock('/u/tree/lock')");
};

subtest 'data of others' => sub {
	my %foreign = (
		text     => 'x', shedlock => '2026-11-22T00:00:00.000Z',
		kazoo    => '{"version": 1, "holder": "h", "end": "2026-11-22T00:00:00"}',
		lock     => '{"server":"a","host":"h","port":5432,"pid":1}', long => 'x' x 100_000);
	foreach my $what (sort keys %foreign)
	{
		$shell->create("/u/foreign/$what", data => $foreign{$what}, makepath => 1);
		refused($s, claim("/u/foreign/$what"), "/u/foreign/$what", qr/were not written by zk_claim/, "$what: are respected");
		refused($s, "zk_last_claim('/u/foreign/$what')", "/u/foreign/$what", qr/were not written by zk_claim/, 'not shown');
		refused($s, "zk_claim_reset('/u/foreign/$what')", "/u/foreign/$what", qr/were not written by zk_claim/, 'and not reset');
		is($shell->get("/u/foreign/$what"), $foreign{$what}, 'they are there');
		is($s->query("SELECT zk_lock('/u/foreign/$what')"), 't', 'a lock does not mind them');
		$s->query("SELECT zk_unlock('/u/foreign/$what')");
	}
	$shell->create('/u/foreign/bytes', hex => '00ff7b22');
	refused($s, claim('/u/foreign/bytes'), '/u/foreign/bytes', qr/were not written by zk_claim/, 'bytes that are no text');
	$shell->create('/u/ephemeral', ephemeral => 1);
	refused($s, claim('/u/ephemeral'), '/u/ephemeral', qr/belongs to a ZooKeeper session/, 'an ephemeral node');
	is($s->try('SELECT ' . claim('/u/ephemeral/below'))->{sqlstate}, '42809', 'has nothing below it');
};

subtest 'nodes that are there, or not to be created' => sub {
	$shell->create('/u/empty');
	is($s->query('SELECT ' . claim('/u/empty')), 't', 'an empty node can be claimed');
	$s->query('SET zklock.parent_nodes = existing');
	my $result = $s->try('SELECT ' . claim('/u/missing'));
	is($result->{sqlstate}, '42704', 'a missing one not, if none is to be created') or diag explain $result;
	is($shell->exists('/u/missing'), undef, 'and none is');
	$s->query('RESET zklock.parent_nodes');
	$result = $s->try('SELECT ' . claim('/u' . '/x' x 17));
	is($result->{sqlstate}, '54000', 'too many missing levels') or diag explain $result;
	is($shell->exists('/u/x'), undef, 'are not created');
	is($s->query('SELECT ' . claim('/u' . '/y' x 14)), 't', 'some are');
};

subtest 'a lock costs nothing more' => sub {
	$zk->shell->create('/u/cheap', makepath => 1);
	$proxy->reset_counts;
	$t->query("SELECT zk_lock('/u/cheap') AND zk_unlock('/u/cheap')");
	is_deeply($proxy->asked, { create2 => 1, getChildren => 1, delete => 1 }, 'where the path has no data');
};

$_->disconnect foreach $s, $t;
Zklock::Server->assert_clean($zk, [ $a, $b ], map { "/u/$_" } qw(lock claim both semaphore/leases empty cheap));
done_testing;
