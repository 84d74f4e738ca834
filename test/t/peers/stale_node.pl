# Copyright (c) 2026, zklock contributors
#
# A lock's node has outlived its session, because of a bug in ZooKeeper. The server reports
# it, and zk_break_lock() removes it.

use Zklock::Test;
use Zklock::Cast;

my ($zk, $a, $b) = cast('a b', zk => { stale_nodes => 1 }, timeout => '20s');
my $shell = $zk->shell;
my $uuids = 0;

# A node that has outlived this session, or one that does not exist; returns its name.
sub stale($path, $session = undef)
{
	my $name = sprintf('_c_00000000-0000-0000-0000-%012d-lock-0000000000', ++$uuids);
	$shell->create($path, makepath => 1) unless $shell->exists($path);
	$zk->stale_node("$path/$name", $session || '0x123456789abcd', $shell->stat($path)->{czxid});
	return $name;
}

sub call($path, $node) { return "SELECT zk_break_lock('$path', '$node')"; }

subtest 'a stale node is removed, and the lock behind it granted' => sub {
	my $name = stale('/st/stale');
	queue($a, 'waiter', '/st/stale');
	$a->wait_value("SELECT blocked_by_node FROM zk_locks WHERE path = '/st/stale'", $name);
	my $mark = $b->log_mark;
	is($b->value(call('/st/stale', $name)), 't', 'it is removed, by another server');
	is($s{waiter}->finish, 't', 'and the lock is granted');
	$b->assert_log($mark, qr{LOG: .* deleted node "/st/stale/$name" by zk_break_lock\(\)\n.*DETAIL: .* in ZooKeeper session 0x123456789abcd\.},
		'the log tells of it');
	is($b->value(call('/st/stale', $name)), 'f', 'a second time there is nothing to remove');
	$s{waiter}->query('SELECT zk_unlock_all()');
};

subtest 'a stale node of a former session of this server is reported once, and can be removed' => sub {
	my $id = $a->session_id;
	$a->expire_session($zk);
	$a->wait_value("SELECT state = 'connected' AND session_id <> '$id' FROM zk_session", 't');
	my $name = stale('/st/own', $id);
	my $mark = $a->log_mark;
	queue($a, "waiter$_", '/st/own') foreach 1 .. 2;
	$a->wait_log(qr{LOG:  node "$name" of lock "/st/own" belongs to ZooKeeper session $id of this server, which has ended}, $mark);
	$a->assert_log($mark, qr/HINT:  .*zk_break_lock/, 'a stale node of our own is reported, with a hint');
	is($s{$_}->cancelled, '57014', "$_ waits no more") foreach qw(waiter1 waiter2);
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	$s{waiter2}->query_start("SELECT zk_lock('/st/own')");
	$a->wait_value("SELECT blocked_by_node FROM zk_locks WHERE path = '/st/own'", $name);
	$a->restart_worker;
	$a->wait_log(qr/which has ended.*connected to ZooKeeper server.*which has ended/s, $mark);
	$a->wait_session;
	is($a->value(call('/st/own', $name)), 't', 'it can be removed');
	is($s{waiter2}->finish, 't', 'which helps');
	my $reports = () = $a->log_since($mark) =~ /which has ended/g;
	is($reports, 2, 'each worker has reported it once');
};

subtest 'a stale node of a session left behind by a crash can be removed' => sub {
	my $id   = $a->session_id;
	my $mark = $a->log_mark;
	kill 'KILL', on($a, 'victim')->pid;
	$a->wait_log(qr/ended ZooKeeper session $id/, $mark);
	$a->wait_session;
	all_disconnect();
	my $name = stale('/st/own', $id);
	queue($a, 'waiter', '/st/own');
	$a->wait_log(qr/"$name" .* session $id of this server, which has ended/, $mark);
	is($a->value(call('/st/own', $name)), 't', 'so is one of a session left behind by a crash');
	is($s{waiter}->finish, 't', 'and removed');
};

done_clean($zk, $a, $b);
