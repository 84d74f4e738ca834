# Copyright (c) 2026, zklock contributors
#
# The node of a holder vanishes without our doing: an administrator deletes it, or the
# ZooKeeper session is ended from outside.
#
# A holder whose node is gone has lost the lock, because the next contender gets it. It is
# told so, and its commit fails.

use strict;
use warnings;

use Test::More;
use Zklock::Cast qw(:DEFAULT token node_of unlock lost one_believer clean);
use Zklock::Server;
use Zklock::Util qw(freeze thaw wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $shell = $zk->shell;
my $a = Zklock::Server->new('a', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'"]);
my $b = Zklock::Server->new('b', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'"]);
$a->value('CREATE TABLE t (i int)');

subtest 'a holder whose node is deleted has lost the lock' => sub {
	hold($a, 'holder', '/n/alone');
	my $mark  = $a->log_mark;
	my $token = token('holder', '/n/alone');
	$shell->delete('/n/alone/' . node_of($a, 'holder'));
	lost($a, 'holder', '/n/alone');
	$a->wait_log(qr{WARNING:  node "/n/alone/_c_\S+" of lock "/n/alone" was deleted by someone else}, $mark);
	pass('the log tells of it');
	hold($a, 'holder', '/n/alone');
	cmp_ok(token('holder', '/n/alone'), '>', $token, 'it can be locked again, with a higher token');
	clean($zk, [ $a, $b ], '/n/alone');
};

subtest 'a deletion is noticed after other changes of the node, too' => sub {
	hold($a, 'holder', '/n/changed');
	foreach my $i (1 .. 3)
	{
		$shell->set('/n/changed/' . node_of($a, 'holder'), "changed $i");
		is($s{holder}->query("SELECT zk_fencing_token('/n/changed') > 0"), 't', 'changed data is no loss');
	}
	# A newcomer ends the watch on the path; the node gets its own.
	queue($b, 'waiter', '/n/changed');
	$zk->wait_watched('/n/changed/' . node_of($a, 'holder'), $a->session_id, $b->session_id);
	$shell->set('/n/changed/' . node_of($a, 'holder'), 'changed again');
	$shell->delete('/n/changed/' . node_of($a, 'holder'));
	is($s{waiter}->finish, 't', 'after a change, too, the deletion is noticed by the next');
	lost($a, 'holder', '/n/changed');
	clean($zk, [ $a, $b ], '/n/changed');
};

subtest 'the lock of a deleted node goes to the next, on another server' => sub {
	hold($a, 'holder', '/n/held');
	queue($a, 'local', '/n/held');
	queue($b, 'remote', '/n/held');
	my $token = token('holder', '/n/held');
	my $node = node_of($a, 'holder');
	my $mark = $a->log_mark;
	$shell->delete("/n/held/$node");
	is($s{remote}->finish, 't', 'who waits elsewhere gets the lock of the deleted node');
	$a->wait_lock($s{holder}, 'lost', '/n/held');
	one_believer([ $a, $b ], 'remote', '/n/held');
	cmp_ok(token('remote', '/n/held'), '>', $token, 'its token is higher than that of the loser');
	lost($a, 'holder', '/n/held');
	my @nodes = $zk->wait_children('/n/held', 2);
	$a->wait_waiting($s{local}, '/n/held');
	ok($s{local}->busy, 'who waited behind the holder waits on');
	wait_until { node_of($a, 'local') eq $nodes[1] } 'the new node to be known';
	pass('with a new node in the last place');
	$a->assert_log($mark, qr/Its holder has lost the lock; waiting sessions queue again/,
		'the log says what it means');
	unlock('remote', '/n/held');
	is($s{local}->finish, 't', 'and gets the lock in its turn');
	clean($zk, [ $a, $b ], '/n/held');
};

subtest 'the lock of a deleted node goes to the next of the same server' => sub {
	hold($a, 'holder', '/n/held2');
	queue($a, 'local', '/n/held2');
	queue($a, 'local2', '/n/held2');
	my $token = token('holder', '/n/held2');
	$shell->delete('/n/held2/' . node_of($a, 'holder'));
	is($s{local}->finish, 't', 'the next session of the same server gets the lock');
	$a->wait_lock($s{holder}, 'lost', '/n/held2');
	one_believer([ $a, $b ], 'local', '/n/held2');
	cmp_ok(token('local', '/n/held2'), '>', $token, 'with a higher token');
	ok($s{local2}->busy, 'it alone');
	is($s{holder}->try("SELECT zk_lock('/n/held2', '100ms')")->{sqlstate}, '40001',
		'the loser does not get it again unnoticed');
	unlock('local', '/n/held2');
	is($s{local2}->finish, 't', 'order is kept among those who queued again');
	clean($zk, [ $a, $b ], '/n/held2');
};

subtest 'a session that gives up all its locks is told of the lost ones, and of no others' => sub {
	foreach my $all ('SELECT zk_unlock_all()', 'DISCARD ALL')
	{
		hold($a, 'holder', '/n/all');
		$s{holder}->query("SELECT zk_lock('/n/kept'), zk_lock_shared('/n/all')");
		$shell->delete("/n/all/$_") foreach $zk->children('/n/all');
		$a->wait_lock($s{holder}, 'lost', '/n/all');
		my $result = $s{holder}->try($all);
		ok($result->{ok}, "$all: lost locks are given up");
		is_deeply([ map { m{lock on ZooKeeper path "(.*)" was lost} } @{ $result->{notices} } ], ['/n/all'],
			"$all: with a warning");
		is($a->lock_count("state <> 'releasing'"), 0, "$all: nothing is held");
	}
	$s{holder}->query('BEGIN');
	is($s{holder}->query("SELECT zk_xact_lock('/n/all')"), 't', 'a lock that it does not give up');
	$shell->delete("/n/all/$_") foreach $zk->children('/n/all');
	$a->wait_lock($s{holder}, 'lost', '/n/all');
	is_deeply($s{holder}->try('SELECT zk_unlock_all()')->{notices} || [], [], 'it has nothing to say about');
	is($s{holder}->try('COMMIT')->{sqlstate}, '40001', 'but the commit has');
	clean($zk, [ $a, $b ], '/n/all', '/n/kept');
};

subtest 'a transaction under a lost lock cannot commit' => sub {
	on($a, 'xact')->query('BEGIN');
	$s{xact}->query("SELECT zk_xact_lock('/n/xact')");
	hold($a, 'writer', '/n/writer');
	$s{writer}->query('BEGIN; INSERT INTO t VALUES (1)');
	hold($a, 'reader', '/n/reader');
	$s{reader}->query('BEGIN; SELECT * FROM t');
	$shell->delete("/n/$_/" . node_of($a, $_)) foreach qw(xact writer reader);
	$a->wait_lock($s{$_}, 'lost', "/n/$_") foreach qw(xact writer reader);
	is($s{xact}->try('COMMIT')->{sqlstate}, '40001', 'a transaction that holds a lost lock cannot commit');
	is($s{writer}->try('COMMIT')->{sqlstate}, '40001', 'nor one that wrote under a lost lock of its session');
	ok($s{reader}->try('COMMIT')->{ok}, 'one that only read can');
	is($a->value('SELECT count(*) FROM t'), 0, 'nothing was written');
	is($s{xact}->query("SELECT zk_try_xact_lock('/n/xact')"), 't', 'the transaction can be repeated');
	clean($zk, [ $a, $b ], '/n/xact', '/n/writer', '/n/reader');
};

subtest 'a ZooKeeper session that is ended from outside loses its locks, and its waiters queue again' => sub {
	hold($a, 'holder', '/n/session');
	queue($a, 'local', '/n/session');
	queue($b, 'remote', '/n/session');
	hold($b, 'other', '/n/session2');
	queue($a, 'waiter', '/n/session2');
	my $token = token('holder', '/n/session');
	my $mark = $a->log_mark;
	my $id = $a->session_id;
	$a->expire_session($zk);
	is($s{remote}->finish, 't', 'session closed from outside: another server gets the lock');
	wait_until { ($a->session_id || $id) ne $id } 'a new session';
	$a->wait_lock($s{holder}, 'lost', '/n/session');
	one_believer([ $a, $b ], 'remote', '/n/session');
	cmp_ok(token('remote', '/n/session'), '>', $token, 'the token is higher');
	is($a->zk_session->{expirations}, 1, 'zk_session counts it');
	lost($a, 'holder', '/n/session');
	ok($s{$_}->busy, "$_ waits") foreach qw(local waiter);
	unlock('remote', '/n/session');
	is($s{local}->finish, 't', 'who waited has queued again');
	unlock('other', '/n/session2');
	is($s{waiter}->finish, 't', 'everywhere');
	clean($zk, [ $a, $b ], '/n/session', '/n/session2');
};

subtest 'a worker that sleeps for longer than its session lives tells the holders when it wakes up' => sub {
	my $c = Zklock::Server->new('c', zookeeper => $zk, conf => ["zklock.session_timeout = '1500ms'"]);
	hold($c, 'holder', '/n/asleep');
	queue($c, 'local', '/n/asleep');
	queue($b, 'remote', '/n/asleep');
	hold($c, 'releaser', '/n/asleep2');
	on($c, 'xact')->query('BEGIN');
	$s{xact}->query("SELECT zk_xact_lock('/n/asleep3')");
	my $token = token('holder', '/n/asleep');
	my $worker = $c->worker_pid;
	my $id = $c->session_id;
	freeze($worker);
	is($s{remote}->finish, 't', 'a worker is stopped for too long: another server gets the lock');
	cmp_ok(token('remote', '/n/asleep'), '>', $token, 'with a higher token');
	# A worker that sleeps cannot see to it, and a session that waits for it can be cancelled.
	$s{releaser}->query_start("SELECT zk_unlock('/n/asleep2')");
	thaw($worker);
	$c->wait_lock($s{holder}, 'lost', '/n/asleep');
	pass('when it wakes up the holder is told');
	isnt($c->session_id, $id, 'there is a new session') if $c->wait_session;
	is($c->worker_pid, $worker, 'of the same worker');
	one_believer([ $a, $b ], 'remote', '/n/asleep');
	lost($c, 'holder', '/n/asleep');
	is($s{xact}->try('COMMIT')->{sqlstate}, '40001', 'a transaction under a lost lock cannot commit');
	ok($s{releaser}->result->{ok}, 'an unlock that was under way ends');
	ok($s{local}->busy, 'who waited here waits');
	unlock('remote', '/n/asleep');
	is($s{local}->finish, 't', 'and is served');
	all_disconnect();
	Zklock::Server->assert_clean($zk, [ $a, $b, $c ], map { "/n/$_" } qw(asleep asleep2 asleep3));
};

done_testing;
