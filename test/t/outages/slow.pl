# Copyright (c) 2026, zklock contributors
#
# A ZooKeeper that answers slowly, for a long time. Locks take as long as it does, and nothing
# worse happens. A lock that cannot be proved in time is suspended, then lost; lease/lease.pl has what others are told
# meanwhile. Signals, settings, cancelled and terminated sessions do not wait for ZooKeeper, nor sessions for a worker
# that is stopped.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT clean scene scene_ends);

my ($zk, $proxy, $late_proxy, $a, $b, $c) = cast('a b c', proxied => 'a c', timeout => '15s', c => { timeout => '4s' });
$_->value('CREATE TABLE t (i int)') foreach $a, $c;
my %id = map { $_->name => $_->session_id } $a, $b, $c;

foreach my $delay (300, 1500)
{
	subtest "answers that take $delay ms are fast enough for the lease" => sub {
		my $path = "/d/$delay";
		$proxy->delay($delay);
		$a->wait_renewed;
		my $mark = $a->log_mark;
		scene($a, $b, $path);
		queue($a, 'canceller', "$path/queue");
		queue($a, 'goer', "$path/queue");
		is($s{canceller}->cancelled, '57014', "$delay ms: a wait is cancelled");
		is($s{goer}->terminated, '57P01', 'a session terminated');
		in_transaction($a, 'xact', "$path/xact", 'INSERT INTO t VALUES (1)');
		ok($s{xact}->try('COMMIT')->{ok}, 'and commits');
		$s{xact}->query('SET zklock.commit_guard = quorum');
		in_transaction($a, 'xact', "$path/xact", 'INSERT INTO t VALUES (1)');
		ok($s{xact}->try('COMMIT')->{ok}, 'and with a guard that asks ZooKeeper');
		is($s{xact}->query("SELECT zk_try_lock('$path/foreign')"), 'f', 'who does not wait for others has an answer');
		is($s{xact}->try("SELECT zk_lock('$path/foreign', '50ms')")->{text}, 'f', 'so has who does not wait for long');
		$a->wait_renewed;
		scene_ends();
		unlike($a->log_since($mark), qr/no longer proved/, 'the lease has held all the time');
		is($a->session_id, $id{a}, 'in the same session');
		clean($zk, [ $a, $b ], map { "$path/$_" } qw(queue foreign xact));
		$proxy->delay(0);
	};
}

$c->wait_session;

foreach my $delay (scaled(1500), scaled(6000))
{
	subtest "answers that take $delay ms are too slow for a session timeout of @{[ scaled('4 s') ]}" => sub {
		my $path = "/d/late$delay";
		hold($c, 'holder', $path);
		queue($c, 'local', $path);
		queue($b, 'remote', $path);
		in_transaction($c, 'xact', "$path-xact", 'INSERT INTO t VALUES (1)');
		$late_proxy->delay($delay);
		ok($c->wait_lock($s{holder}, 'suspended', $path), "$delay ms, too late: suspended");
		$s{xact}->query_start('COMMIT');
		on($c, 'trier');
		is($s{trier}->try("SELECT zk_try_lock('$path-free')")->{sqlstate}, '58030', 'nobody can tell whether a lock is free');
		is($s{trier}->try("SELECT zk_lock('$path-free', '50ms')")->{sqlstate}, '58030', 'nor within a short time');
		queue($c, $_, "$path-free") foreach qw(canceller goer);
		is($s{canceller}->cancelled, '57014', 'a wait is cancelled');
		is($s{goer}->terminated, '57P01', 'a session terminated');
		ok($c->wait_lock($s{holder}, 'lost', $path), 'in the end the lock counts as lost');
		is($s{xact}->result->{sqlstate}, '40001', 'and the commit that waited fails');
		is($c->value('SELECT count(*) FROM t'), 0, 'having written nothing');
		$late_proxy->delay(0);
		$c->wait_session;
		is($s{holder}->query("SELECT zk_unlock('$path')"), 'f', 'who held it hears so');
		wait_until { !$s{local}->busy || !$s{remote}->busy } 'somebody to get the lock';
		my ($next, $last) = $s{local}->busy ? qw(remote local) : qw(local remote);
		is($s{$next}->finish, 't', 'when answers are quick again the queue goes on');
		ok($s{$last}->busy, 'one after the other');
		$s{$next}->hands_over($path, $s{$last}, 'to the last');
		clean($zk, [ $b, $c ], map { "$path$_" } '', '-xact', '-free');
	};
}

subtest 'a session that unlocks waits for the deletion, but not for a worker that is stopped' => sub {
	hold($c, 'holder', '/d/unlock');
	$late_proxy->hold_request_of($s{holder}, "SELECT zk_unlock('/d/unlock')", op => 'delete');
	ok($s{holder}->busy, 'who unlocks waits for the deletion');
	my $worker = $c->worker_pid;
	freeze($worker);
	on($c, 'asker')->query_start("SELECT zk_try_lock('/d/free')");
	is($s{holder}->finish, 't', 'but not for a worker that is stopped');
	fails($s{asker}->result, '58030', 'nor does who wants to know whether a lock is free',
		detail => qr/^The connection to ZooKeeper server 127\.0\.0\.1:\d+ stands, but the session is not proved/);
	ok(!eval { $c->wait_session('connected', 1); 1 }, 'to be connected is not all that a test waits for');
	thaw($worker);
	$c->reconnect($late_proxy);
	clean($zk, [$c], '/d/unlock', '/d/free');
};

subtest 'nobody waits for a ZooKeeper that answers nothing any more' => sub {
	hold($a, 'holder', '/d/silent');
	queue($a, 'waiter', '/d/silent');
	queue($a, 'goer', '/d/silent');
	on($a, 'undoer')->query("SELECT zk_lock_tree('/d/tree/x/y', '/d/tree')");
	$proxy->blackhole('replies');
	$s{undoer}->query_start("SELECT zk_unlock_tree('/d/tree/x/y', '/d/tree')");
	$a->wait_event($s{undoer}, 'unlock');
	is($s{undoer}->cancelled, '57014', 'the undoing of a tree is cancelled');
	is($a->lock_count(q{state <> 'releasing' AND pid = } . $s{undoer}->pid), 0, 'which finds all undone');
	on($a, 'asker')->query_start("SELECT zk_lock('/d/silent-new')");
	$a->wait_lock($s{asker}, 'waiting', '/d/silent-new');
	my $mark = $a->log_mark;
	$a->set_conf('zklock.commit_guard' => 'quorum', 'log_min_messages' => 'debug1');
	wait_until { $s{holder}->query('SHOW zklock.commit_guard') eq 'quorum' } 'new settings';
	$a->set_conf('zklock.session_timeout' => scaled('20s'));
	$a->restart_worker;
	is($s{waiter}->cancelled, '57014', 'a wait is cancelled');
	is($s{goer}->terminated, '57P01', 'a session terminated');
	$a->restart_worker;
	$proxy->heal;
	is($s{asker}->finish, 't', 'who waited through all that gets the lock');
	is($a->session_id, $id{a}, 'in the old session');
	clean($zk, [ $a, $b, $c ], '/d/silent', '/d/silent-new', '/d/tree/x/y');
};

done_clean($zk, $a, $b, $c);
