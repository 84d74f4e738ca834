# Copyright (c) 2026, zklock contributors
#
# A server is stopped. No other session gets a lock while the holder's transaction may still be finishing; as soon as
# it has finished, the next one does. Session timeouts here are so long that no session ends by itself.

use Zklock::Test;
use POSIX qw(SIGHUP SIGTERM);
use PostgreSQL::Test::Utils;
use Zklock::Cast qw(:DEFAULT freeze_asleep);

my ($zk, $proxy, $a, $b, $c) = cast('a b c',
	zk => { maxSessionTimeout => 600000 }, proxied => 'a', timeout => '10min', conf => [ 'log_min_messages = debug1', 'wal_level = replica', 'max_wal_senders = 10' ]);
$a->value('CREATE TABLE work (done int)');

# The session has ended, not only its locks.
sub session_is_over($id) { return unlike($zk->four_letter('dump'), qr/\b$id\b/, 'the ZooKeeper session has ended'); }

# A subtest: the code, which gets the id of the server's session and a mark in its log, stops the server, and may
# start it again; in the end that session is over.
sub stopping($name, $code)
{
	return subtest $name => sub {
		$a->start_connected unless defined $a->node->{_pid};
		my $id = $a->session_id;
		$code->($id, $a->log_mark);
		session_is_over($id);
		# All but the one that does not come to its end
		$_->disconnect foreach delete @s{ grep { !/slow/ } keys %s };
	};
}

# A holder does not come to its end in time. This goes on until the end of the test.
hold($c, 'slow', '/s/slow');
queue($b, 'slow_heir', '/s/slow');
my $c_id   = $c->session_id;
my $c_mark = $c->log_mark;
freeze($s{slow}->pid);
$c->begin_stop('fast');

stopping 'a fast shutdown ends transactions and sessions, and waits for a session that is slow to end' => sub ($id, $mark) {
	in_transaction($a, 'writer', '/s/xact', 'INSERT INTO work VALUES (1)');
	hold($a, 'holder', '/s/held');
	hold($a, 'stuck', '/s/stuck');
	queue($a, 'waiter', '/s/stuck');
	queue($b, "heir $_", "/s/$_") foreach qw(xact held stuck);
	freeze($s{stuck}->pid);
	$a->begin_stop('fast');
	is($s{'heir xact'}->finish, 't', 'fast: a transaction that was aborted has released its lock');
	is($s{'heir held'}->finish, 't', 'so has a session that was terminated');
	$a->wait_log(qr/zklock worker waits until all locks are released/, $mark);
	ok($s{'heir stuck'}->busy, 'while a session is not at its end nobody gets its lock');
	is(($zk->owners('/s/stuck'))[0], $id, 'its node is there');
	thaw($s{stuck}->pid);
	is($s{'heir stuck'}->finish, 't', 'when it is, its lock is free');
	$a->wait_stopped;
	ok(!-e $a->session_file, 'the session is forgotten');
	unlike($a->log_since($mark), qr/locks still held/, 'the worker has nothing to complain of');
	$a->assert_log($mark, qr/zklock worker" \(PID \d+\) exited with exit code 1/, 'and has left with exit code 1');
};

stopping 'a session that is just taking a persistent lock leaves no node' => sub ($id, $mark) {
	my $path = '/s/persistent';
	$proxy->hold_reply_of(on($a, 'taker'), "SELECT zk_lock_persistent('$path')", op => 'create2', path => "^$path/");
	freeze_asleep($s{taker});
	$proxy->heal;
	is($a->value(q{SELECT count(*) FROM zk_contenders('/s/nobody')}), 0, 'the worker has the answer');
	is(scalar(my @nodes = $zk->children($path)), 1, 'the node is there, and its session does not know');
	$a->begin_stop('fast');
	wait_until { $a->log_since($mark) =~ /waits until all locks are released|zklock worker" \(PID \d+\) exited/ } 'the worker to have looked';
	thaw($s{taker}->pid);
	$a->wait_stopped;
	is_deeply([ $zk->children($path) ], [], 'nothing is left');
	unlike($a->log_since($mark), qr/locks still held/, 'the worker has nothing to complain of');
};

stopping 'in a smart shutdown sessions work on, and their locks are theirs' => sub ($id, $mark) {
	is($a->value('SELECT count(*) FROM work'), 0, 'the transaction has been rolled back');
	in_transaction($a, 'writer', '/s/xact', 'INSERT INTO work VALUES (2)');
	hold($a, 'holder', '/s/held');
	queue($a, 'waiter', '/s/held');
	queue($b, "heir $_", "/s/$_") foreach qw(xact held);
	on($a, 'newcomer');
	$a->begin_stop('smart');
	$a->wait_log(qr/received smart shutdown request/, $mark);
	is($s{newcomer}->query("SELECT zk_lock('/s/new')"), 't', 'smart: a session can still lock');
	$s{newcomer}->disconnect;
	ok($s{'heir xact'}->busy, 'a lock is held');
	$s{writer}->query('COMMIT');
	is($s{'heir xact'}->finish, 't', 'until its transaction ends');
	$s{holder}->hands_over('/s/held', $s{waiter}, 'a lock that is given back goes to who waits here');
	ok($s{'heir held'}->busy, 'and not to who comes after');
	$s{$_}->disconnect foreach qw(writer holder waiter);
	is($s{'heir held'}->finish, 't', 'when the last session ends its lock is free');
	$a->wait_stopped;
	ok(!-e $a->session_file, 'the session is forgotten');
};

stopping 'a worker that is terminated during a smart shutdown is followed by another, and no lock is lost' => sub ($id, $mark) {
	is($a->value('SELECT done FROM work'), 2, 'the transaction has been committed');
	hold($a, 'holder', '/s/held');
	queue($b, 'heir', '/s/held');
	my $token  = $s{holder}->query("SELECT zk_reserve('/s/reserved', '1h')");
	my $worker = $a->worker_pid;
	$a->begin_stop('smart');
	$a->wait_log(qr/received smart shutdown request/, $mark);
	$s{holder}->query("SELECT pg_terminate_backend($worker)");
	wait_until { $s{holder}->query("SELECT worker_pid <> $worker AND state = 'connected' FROM zk_session") eq 't' } 'another worker';
	is($s{holder}->query('SELECT session_id FROM zk_session'), $id, 'in the same session');
	is($s{holder}->query("SELECT zk_fencing_token('/s/held') > 0"), 't', 'who holds a lock has it');
	is($s{holder}->query("SELECT zk_renew('/s/reserved', $token, '1h')"), 't', 'so is what is reserved');
	is($s{holder}->query("SELECT zk_lock('/s/new')"), 't', 'locks are granted');
	ok($s{'heir'}->busy, 'others wait');
	$s{holder}->disconnect;
	is($s{heir}->finish, 't', 'until the last session ends');
	$a->wait_stopped;
	ok(!-e $a->session_file, 'the session is forgotten');
};

# Has a process been sent a signal that it has not taken yet?
sub is_pending($pid, $number)
{
	my $status = slurp_file("/proc/$pid/status");
	return grep { hex($_) & 1 << $number - 1 } $status =~ /^(?:SigPnd|ShdPnd):\s*(\w+)/mg;
}

stopping 'a worker that is to stop does not restart for changed settings' => sub ($id, $mark) {
	hold($a, 'holder', '/s/held');
	queue($b, 'heir', '/s/held');
	my $worker = $a->worker_pid;
	$a->append_conf('postgresql.conf', "zklock.session_timeout = '9min'");
	freeze($worker);
	$a->reload;
	$a->wait_value('SHOW zklock.session_timeout', '9min');
	$a->begin_stop('fast');
	wait_until { is_pending($worker, SIGHUP) && is_pending($worker, SIGTERM) } 'both signals';
	thaw($worker);
	is($s{heir}->finish, 't', 'a worker that is to stop does not restart for changed settings');
	$a->wait_stopped;
};

stopping 'an element whose transaction has committed is removed' => sub ($id, $mark) {
	on($a, 'taker')->query("SELECT zk_queue_offer('/s/queue', 'x')");
	$s{taker}->query('BEGIN');
	is($s{taker}->query("SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('/s/queue')"), 'x', 'a transaction takes it');
	my $worker = $a->worker_pid;
	freeze($worker);
	$s{taker}->query('COMMIT');
	$a->begin_stop('fast');
	wait_until { is_pending($worker, SIGTERM) } 'the signal';
	thaw($worker);
	$a->wait_stopped;
	is(scalar $zk->children('/s/queue'), 0, 'before the session ends');
};

stopping 'a slow ZooKeeper hears of all deletions before the session ends' => sub ($id, $mark) {
	hold($a, 'holder', '/s/delayed');
	$proxy->delay(500);
	$a->stop('fast');
	$proxy->delay(0);
	ok(!-e $a->session_file, 'the session is closed when the deletions have been answered');
};

# The postmaster ends replication connections when all else has gone, the worker too, which would wait for their locks.
subtest 'nothing for which a shutdown waits can be had in a replication connection' => sub {
	$a->start_connected;
	my $token = $a->value("SELECT zk_reserve('/s/reserved', '1h')");
	$a->value("SELECT zk_queue_offer('/s/elements', 'x')");
	foreach my $call ("zk_lock('/s/r')", "zk_try_lock_shared('/s/r')", "zk_xact_lock('/s/r', '1s')", "zk_lock(ARRAY['/s/r', '/s/s'])",
		"zk_semaphore_acquire('/s/r', 1)", "zk_reserve('/s/r', '1s')", "zk_rely('/s/reserved', $token)", "zk_xact_queue_take('/s/elements', '0')")
	{
		my (undef, undef, $error) = $a->node->psql('postgres', "\\set VERBOSITY verbose\nSELECT $call", replication => 'database');
		like($error, qr/ERROR:  0A000: cannot hold ZooKeeper locks in a replication connection\n.*HINT:  /s, $call);
	}
	is($a->node->safe_psql('postgres', "SELECT zk_claim('/s/claim', now())", replication => 'database'), 't', 'what is done at once can');
	$a->stop('fast');
};

my %away = ('does not answer' => sub { $proxy->blackhole; }, 'cannot be reached' => sub { $a->cut_off($proxy); });

foreach my $how (sort keys %away)
{
	stopping "a ZooKeeper that $how does not keep the server from stopping" => sub ($id, $mark) {
		hold($a, 'holder', '/s/away');
		queue($b, 'heir', '/s/away');
		$away{$how}->();
		$a->stop('fast');
		ok($s{heir}->busy, 'the session lives on');
		ok(-e $a->session_file, 'and is known');
		$proxy->heal;
		$a->start;
		is($s{heir}->finish, 't', 'the next start ends it');
		$a->wait_session;
	};
}

subtest 'a session that does not end in time keeps its lock until the next start' => sub {
	$c->wait_log(qr/zklock worker exits with locks still held/, $c_mark);
	ok($s{slow_heir}->busy, 'the worker goes, but not the lock');
	is(($zk->owners('/s/slow'))[0], $c_id, 'its session lives');
	thaw($s{slow}->pid);
	$c->wait_stopped;
	ok(-e $c->session_file, 'it is known');
	ok($s{slow_heir}->busy, 'nobody has got the lock');
	$c->start;
	is($s{slow_heir}->finish, 't', 'until the next start');
	$c->wait_session;
	session_is_over($c_id);
};

done_clean($zk, $a, $b, $c);
