# Copyright (c) 2026, zklock contributors
#
# ZooKeeper is there, and says no: each refusal is an error of its own that names
# ZooKeeper's, and leaves nothing behind.

use Zklock::Test;
use Zklock::Cast qw(fails);

my ($zk, $a, $b) = cast('a b', timeout => '20s');
my $shell = $zk->shell;
# The administrator may do everything, whatever the world may not.
$shell->add_auth('digest', 'admin:secret');
my @admin = [ 'digest', 'admin:secret', 'cdrwa' ];

my $s = $a->session;
my $other = $a->session;
my $remote = $b->session;

# All ways to ask fail in the same manner.
sub refused($path, $sqlstate, $detail, $what)
{
	foreach my $call ("zk_lock('$path')", "zk_lock('$path', '1min')", "zk_try_lock('$path')",
		"zk_xact_lock('$path')", "zk_try_xact_lock('$path')", "zk_lock(ARRAY['$path', '/r/free'])")
	{
		my $result = $s->try("SELECT $call");
		is($result->{sqlstate}, $sqlstate, "$what: $call fails")
		  or diag $result->{error} || $result->{text};
		like($result->{detail} || '', $detail, 'and says what ZooKeeper said');
	}
	return;
}

subtest 'an ephemeral node cannot be locked' => sub {
	$shell->create('/r/ephemeral', ephemeral => 1, makepath => 1);
	refused('/r/ephemeral', '42809', qr/ZNOCHILDRENFOREPHEMERALS/, 'path is an ephemeral node');
	refused('/r/ephemeral/a/b', '42809', qr/ZNOCHILDRENFOREPHEMERALS/, 'path below an ephemeral node');
	$a->assert_clean($zk, '/r/ephemeral', '/r/free');
	$shell->delete('/r/ephemeral');
};

subtest 'who lacks a right is told which' => sub {
	my %right = (
		'/r/nothing'  => '',
		'/r/nocreate' => 'rwda',
		'/r/nolist'   => 'cwda');
	$shell->create($_, acl => [ @admin, $right{$_} ? [ 'world', 'anyone', $right{$_} ] : () ])
	  foreach sort keys %right;
	foreach my $path (sort keys %right)
	{
		refused($path, '42501', qr/ZNOAUTH/, "$path may not be " . ($path =~ /nolist/ ? 'read' : 'written'));
		like($s->try("SELECT zk_lock('$path')")->{hint} || '', qr/ACL/, 'the hint leads to the ACL');
	}
	refused('/r/nothing/below', '42501', qr/ZNOAUTH/, 'a path that cannot be created');
	# On a server that waited for the path, the queue is refused as a whole.
	$a->assert_clean($zk, sort keys %right);

	# What lies below a forbidden node may be allowed.
	$shell->create('/r/nothing/open');
	is($s->query("SELECT zk_lock('/r/nothing/open')"), 't', 'a path below one that is forbidden');
	is($s->query("SELECT zk_unlock('/r/nothing/open')"), 't', 'is locked and unlocked');
};

# A node that cannot be read cannot be watched, so the path is.

sub unreadable($path)
{
	return $shell->create("$path/_c_00000000-0000-0000-0000-000000000000-lock-",
		ephemeral => 1, sequence => 1, acl => [@admin]);
}

subtest 'a predecessor that cannot be read is waited for all the same' => sub {
	$shell->create('/r/unreadable');
	my @before = (unreadable('/r/unreadable'), $zk->foreigner('/r/unreadable'));
	$s->start_waiting("SELECT zk_lock('/r/unreadable')");
	$other->start_waiting("SELECT zk_lock('/r/unreadable')");
	wait_until { $zk->children('/r/unreadable') == 3 } 'the waiting node';
	is($a->session->try("SELECT zk_try_lock('/r/unreadable')")->{text}, 'f', 'the path is taken for who does not wait');
	$shell->delete($before[1]);
	$a->wait_value('SELECT blocked_by_node FROM zk_locks WHERE pid = ' . $s->pid, $before[0] =~ s{.*/}{}r);
	ok($s->busy, 'after the readable one the unreadable one is waited for');
	$shell->delete($before[0]);
	is($s->finish, 't', 'until it goes');
	ok($other->busy, 'the next session waits');
	my $after = unreadable('/r/unreadable');
	is($s->query("SELECT zk_unlock('/r/unreadable')"), 't', 'unlocked');
	is($other->finish, 't', 'and gets it in its turn');
	$other->query("SELECT zk_unlock('/r/unreadable')");
	$shell->delete($after);
	$a->assert_clean($zk, '/r/unreadable');
};

subtest 'children that are no contenders are ignored, and logged once' => sub {
	$shell->create('/r/odd');
	my $mark = $a->log_mark;
	foreach my $name ('readme', 'lock', 'lock-1', 'something-0000000001', "caf\x{e9}",
		'_c_00000000-0000-0000-0000-000000000000-lock-')
	{
		$shell->create("/r/odd/$name");
		is($s->query("SELECT zk_lock('/r/odd')"), 't', 'a child that is no contender is ignored');
		$other->start_waiting("SELECT zk_lock('/r/odd')");
		$s->hands_over('/r/odd', $other, 'by the next session as well');
		$other->query("SELECT zk_unlock('/r/odd')");
	}
	is($remote->query("SELECT zk_try_lock('/r/odd')"), 't', 'and by who does not wait');
	$remote->query("SELECT zk_unlock('/r/odd')");
	$a->wait_log(qr{LOG:  ignoring child ".*" of lock path "/r/odd"}, $mark);
	my $lines = () = $a->log_since($mark) =~ m{LOG:  ignoring child}g;
	is($lines, 1, 'the log tells of it once');
	$shell->delete("/r/odd/$_") foreach $zk->children('/r/odd');
	Zklock::Server->assert_clean($zk, [ $a, $b ], '/r/odd');
};

subtest 'the ACL of a creator who has shown no credentials cannot be made' => sub {
	my $id = $a->session_id;
	is($other->query("SELECT zk_lock('/r/kept')"), 't', 'a lock is held');
	$a->set_conf('zklock.acl' => 'creator');
	wait_until { $s->try("SELECT zk_lock('/r/creator')")->{sqlstate} eq '42501' || $s->query('SELECT zk_unlock_all()') x 0 }
	  'zklock.acl to be in force';
	refused('/r/creator', '42501', qr/ZINVALIDACL/, 'zklock.acl = creator without credentials');
	$a->set_conf('zklock.acl' => 'open');
	wait_until { $s->try("SELECT zk_lock('/r/creator')")->{ok} } 'zklock.acl to be in force';
	$s->query("SELECT zk_unlock('/r/creator')");
	$a->wait_session;
	is($a->session_id, $id, 'all in one session');
	is($other->query("SELECT zk_fencing_token('/r/kept') > 0"), 't', 'whose locks are undisturbed');
	$other->query("SELECT zk_unlock('/r/kept')");
};

subtest 'a node that cannot be deleted is deleted as soon as it can' => sub {
	# Nothing but the node itself stands in the way, and the administrator can delete that.

	$shell->create('/r/nodelete', acl => [ @admin, [ 'world', 'anyone', 'cr' ] ]);
	is($s->query("SELECT zk_lock('/r/nodelete')"), 't', 'locked without the right to delete');
	$remote->start_waiting("SELECT zk_lock('/r/nodelete')");
	my $mark = $a->log_mark;
	$s->query_start("SELECT zk_unlock('/r/nodelete')");
	$a->wait_log(qr{LOG:  could not delete ZooKeeper node "/r/nodelete/_c_\S+": ZNOAUTH}, $mark);
	pass('the log tells that the node cannot be deleted');
	ok($remote->busy, 'nobody elsewhere gets the lock');
	is($s->cancelled, '57014', 'zk_unlock waits, and can be cancelled');
	is($s->query("SELECT zk_try_lock('/r/free') AND zk_unlock('/r/free')"), 't', 'the session goes on, and waits no more for that node');
	my ($node) = $zk->children('/r/nodelete');
	$shell->delete("/r/nodelete/$node");
	is($remote->finish, 't', 'the administrator deletes it: the next one gets the lock');
	# b cannot delete its node either. Without that right ZooKeeper does not even say that a
	# node is gone.
	$remote->query_start("SELECT zk_unlock('/r/nodelete')");
	$b->wait_log(qr{could not delete ZooKeeper node "/r/nodelete/}, 0);
	$shell->delete("/r/nodelete/$_") foreach $zk->children('/r/nodelete');
	is(eval { $remote->finish(15) }, 't', 'zk_unlock returns when the node is gone')
	  or $remote->cancel && $remote->result;
	my $lines = () = $a->log_since($mark) =~ /could not delete ZooKeeper node/g;
	cmp_ok($lines, '<=', 5, 'without flooding the log');
	Zklock::Server->assert_clean($zk, [ $a, $b ], '/r/nodelete');
};

subtest 'a downgrade that is refused leaves the lock as it was' => sub {
	# The holder keeps what it has. It is tried again now and then, by a new worker as well,
	# which may not even look.

	$shell->create('/r/nodowngrade');
	is($s->query("SELECT zk_lock('/r/nodowngrade') AND zk_lock_shared('/r/nodowngrade')"), 't', 'held in both modes');
	$remote->query_start("SELECT zk_lock_shared('/r/nodowngrade')");
	$zk->wait_watched('/r/nodowngrade/' . $a->wait_holder($s, '/r/nodowngrade')->{node});
	$shell->set_acl('/r/nodowngrade', [@admin]);
	my $mark = $a->log_mark;
	$s->query_start("SELECT zk_unlock('/r/nodowngrade')");
	$a->wait_log(qr{LOG:  could not replace ZooKeeper node "/r/nodowngrade/_c_\S+" by a shared one: ZNOAUTH}, $mark);
	pass('the log tells that the node cannot be replaced');
	my $asked = $zk->mark;
	$a->restart_worker;
	$a->wait_session;
	is($other->query("SELECT zk_lock('/r/free') AND zk_unlock('/r/free')"), 't', 'others are served meanwhile') foreach 1 .. 20;
	my @asked = grep { $_->{path} eq '/r/nodowngrade' } $zk->request_list($asked, session => $a->session_id);
	cmp_ok(scalar(@asked), '<', 10, 'and ZooKeeper is not asked over and over');
	ok($remote->busy, 'nobody can share the lock');
	$shell->set_acl('/r/nodowngrade', [ @admin, [ 'world', 'anyone', 'cdrwa' ] ]);
	is($remote->finish, 't', 'until it is allowed');
	$s->finish;
	$_->query("SELECT zk_unlock_shared('/r/nodowngrade')") foreach $s, $remote;
};

done_clean($zk, $a, $b);
