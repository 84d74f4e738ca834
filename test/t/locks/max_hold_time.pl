# Copyright (c) 2026, zklock contributors
#
# zklock.max_hold_time: a session that holds a lock for longer has lost it, whatever it is
# doing, and others get it then. That goes for shared locks, upgrades and downgrades, several locks at once and
# semaphores, too, and when ZooKeeper is away. When the time ends is in sql/hold_time.sql.

use Zklock::Test;
use List::Util qw(sum0);
use Zklock::Cast qw(:DEFAULT story token);

# A lease that outlasts the tests of a worker that stands still.
my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '30s');
$a->value('CREATE TABLE t (i int)');

# A session of the first server whose locks are limited
sub limited($name, $limit)
{
	on($a, $name)->query("SET zklock.max_hold_time = '$limit'");
	return $s{$name};
}

# It holds the path in a transaction that has written.
sub hold_for($limit, $name, $path, $call = 'zk_lock')
{
	my $session = limited($name, $limit);
	$session->query('BEGIN');
	is($session->query("SELECT $call('$path')"), 't', "$name holds $path");
	$session->query('INSERT INTO t VALUES (1)');
	return $session;
}

my $overrun = qr/It was held for longer than the \d+ ms that "zklock\.max_hold_time" allowed\./;

sub refused($session, $path)
{
	fails($session->try('COMMIT'), '40001', 'the commit is refused',
		message => "lock on ZooKeeper path \"$path\" was lost", error => $overrun);
	is($a->value('SELECT count(*) FROM t'), 0, 'nothing of the transaction is left');
	return;
}

# Of zk_locks, on a clock that both servers share, in us
sub microseconds($column) { return "(extract(epoch FROM $column) * 1000000)::bigint"; }

sub time_of($server, $column, $path)
{
	return $server->value('SELECT ' . microseconds($column) . " FROM zk_locks WHERE path = '$path'");
}

story 'a session that is stopped holds up others for that time, not for ever' => sub {
	my $stopped = hold_for('2s', 'stopped', '/h/stopped', 'zk_xact_lock');
	my $expires = time_of($a, 'expires_at', '/h/stopped');
	cmp_ok($expires, '==', time_of($a, 'granted_at', '/h/stopped') + 2_000_000, 'zk_locks tells until when');
	my $token = token('stopped', '/h/stopped');
	my $mark = $a->log_mark;
	freeze($stopped->pid);
	queue($b, 'elsewhere', '/h/stopped');
	is($s{elsewhere}->finish, 't', 'a session of another server gets the lock');
	cmp_ok(time_of($b, 'granted_at', '/h/stopped'), '>=', $expires, 'but not before');
	cmp_ok(token('elsewhere', '/h/stopped'), '>', $token, 'with a newer token');
	$a->wait_lock($stopped, 'lost', '/h/stopped');
	my $pid = $stopped->pid;
	$a->assert_log($mark, qr{WARNING:  locks were held for longer than "zklock.max_hold_time"\n.*DETAIL:  Locks lost: 1\.\n\s*Process $pid has lost "/h/stopped"\.},
		'the log names who lost what');
	thaw($stopped->pid);
	refused($stopped, '/h/stopped');
	$a->wait_value("SELECT count(*) FROM zk_locks WHERE path = '/h/stopped'", 0);
};

story 'one that is in a loop, which the next of its server does not wait for' => sub {
	my $busy = hold_for('500ms', 'busy', '/h/loop');
	my $token = token('busy', '/h/loop');
	$busy->query_start('DO $$ BEGIN LOOP PERFORM pg_backend_pid(); END LOOP; END $$');
	queue($a, 'next', '/h/loop');
	is($s{next}->finish, 't', 'it gets the lock');
	cmp_ok(token('next', '/h/loop'), '>', $token, 'with a newer token');
	ok($busy->busy, 'while the other goes on');
	is($busy->cancelled, '57014', 'until somebody cancels it');
	$busy->query('ROLLBACK');
	my $result = $busy->try("SELECT zk_unlock(array['/h/never', '/h/loop'])");
	is($result->{text}, 'f', 'the loss is not silent');
	like($result->{notices}[0], qr/lock on ZooKeeper path "\/h\/loop" was lost before it was released/, 'as the warning says');
	like($result->{notices}[1], qr/you don't own a session-level exclusive lock on ZooKeeper path "\/h\/never"/,
		'before that of a lock that was not held');
	is($s{next}->query("SELECT zk_unlock('/h/loop')"), 't', 'the other has the lock still');
};

story 'zklock.on_lock_loss applies' => sub {
	foreach my $policy (qw(cancel terminate))
	{
		my $session = on($a, $policy);
		$session->query("SET zklock.on_lock_loss = $policy");
		hold_for('300ms', $policy, "/h/$policy");
		$session->query_start('DO $$ BEGIN LOOP PERFORM pg_backend_pid(); END LOOP; END $$');
		is($session->result->{sqlstate}, $policy eq 'cancel' ? '57014' : '57P01', "$policy: the statement is interrupted");
	}
};

story 'a worker that stands still prolongs nothing' => sub {
	my $late = hold_for('1s', 'late', '/h/worker', 'zk_xact_lock');
	freeze($a->worker_pid);
	$a->wait_lock($late, 'lost', '/h/worker');
	refused($late, '/h/worker');
	thaw($a->worker_pid);
};

story 'nor does one that restarts, for a session whose client is gone without a word' => sub {
	my $early = hold_for('3s', 'early', '/h/restart');
	my $expires = time_of($a, 'expires_at', '/h/restart');
	$a->restart_worker;
	$a->wait_session;
	is(time_of($a, 'expires_at', '/h/restart'), $expires, 'the end is where it was');
	queue($b, 'later', '/h/restart');
	is($s{later}->finish, 't', 'another server gets the lock');
	refused($early, '/h/restart');
	like($early->try("SELECT zk_lock('/h/restart')")->{error}, $overrun, 'nothing is built on a lost lock');
	like($early->try("SELECT zk_fencing_token('/h/restart')")->{error}, $overrun, 'nor is there a token');
};

story 'of two that share a lock, one goes and the other stays' => sub {
	my $limited = limited('reader', '500ms');
	$limited->query("SELECT zk_lock_shared('/k/shared')");
	on($a, 'other reader')->query("SELECT zk_lock_shared('/k/shared')");
	$a->wait_lock($limited, 'lost', '/k/shared');
	is_deeply([ $s{'other reader'}->modes('/k/shared') ], ['shared held'], 'the other holds it');
	queue($b, 'writer', '/k/shared');
	$s{'other reader'}->query("SELECT zk_unlock_shared('/k/shared')");
	is($s{writer}->finish, 't', 'a writer waits for that one only');
};

story 'a role that loses locks all the time does not fill the log' => sub {
	my $flood  = limited('flood', '300ms');
	my $losses = q(SELECT losses FROM zk_stats WHERE kind = 'lock' AND mode = 'exclusive');
	my $pid    = $flood->pid;
	$flood->query("SELECT zk_lock('/k/before')");
	$a->wait_log(qr{Process $pid has lost "/k/before"});
	my ($mark, $before) = ($a->log_mark, $a->value($losses));
	my $told = sub { return sum0($a->log_since($mark) =~ /DETAIL:  Locks lost: (\d+)\./g); };
	my $held = grep { $flood->try("SELECT zk_lock('/k/flood$_')")->{ok} } 1 .. 60;
	wait_until { $told->() >= $held && $told->() == $a->value($losses) - $before } 'the log to tell of each loss, once';
	$a->assert_rare($mark, qr/WARNING:  locks were held for longer than/, 'it does so once a second at most');
};

story 'an upgrade has a time of its own' => sub {
	my $limited = limited('upgrader', '500ms');
	$limited->query("SELECT zk_lock_shared('/k/up')");
	$limited->query('SET zklock.max_hold_time = 0');
	$limited->query("SELECT zk_lock('/k/up')");
	$a->wait_lock($limited, 'lost', '/k/up');
	is_deeply([ $limited->modes('/k/up') ], [ 'exclusive held', 'shared lost' ], 'the shared lock goes, the exclusive one stays');
};

foreach my $case (
	[ 'an array', "zk_lock('{/k/array1,/k/array2}'::text[])", '/k/array2' ],
	[ 'a tree', "zk_lock_tree('/k/tree/leaf', '/k')", '/k/tree/leaf' ])
{
	my ($what, $call, $last) = @$case;
	story "of $what, what is lost while others are waited for makes it fail" => sub {
		hold($b, 'blocker', $last);
		my $limited = limited('collector', '500ms');
		$limited->query_start("SELECT $call");
		$a->wait_lock($limited, 'lost');
		$s{blocker}->query("SELECT zk_unlock('$last')");
		fails($limited->result, '40001', 'it fails', error => qr/It was held for longer/);
		is($a->lock_count('pid = ' . $limited->pid . " AND state <> 'releasing'"), 0, 'nothing is held');
	};
}

story 'while a downgrade is under way, whose answer is lost with the worker' => sub {
	my $path = '/h/downgrade';
	my $downgrades = limited('downgrades', '2s');
	$downgrades->query("SELECT zk_lock('$path') AND zk_lock_shared('$path')");
	$proxy->hold_reply_of($downgrades, "SELECT zk_unlock('$path')", op => 'multi', path => "^$path/");
	freeze($downgrades->pid);
	$a->wait_lock($downgrades, 'lost', $path);
	my $worker = $a->worker_pid;
	$a->value("SELECT pg_terminate_backend($worker)");
	$proxy->heal;
	$a->wait_new_worker($worker);
	is(on($b, 'next')->query("SELECT zk_lock('$path')"), 't', 'a session of another server gets the lock');
	thaw($downgrades->pid);
	$downgrades->result;
};

story 'a permit of a semaphore' => sub {
	my $limited = limited('permit', '500ms');
	$limited->query("SELECT zk_semaphore_acquire('/k/sem', 1)");
	is(on($b, 'next permit')->query("SELECT zk_semaphore_acquire('/k/sem', 1)"), 't', 'then another server has it');
	is($limited->query("SELECT zk_semaphore_release('/k/sem')"), 'f', 'the loss is not silent');
};

story 'a session that is stopped while it waits for a permit' => sub {
	on($b, 'owner')->query("SELECT zk_semaphore_acquire('/k/turn', 1)");
	my $stopped = limited('stopped waiter', '1s');
	$stopped->query_start("SELECT zk_semaphore_acquire('/k/turn', 1)");
	wait_until { $zk->children('/k/turn/leases') == 2 } 'it to have its turn, and to wait for the permit';
	freeze($stopped->pid);
	on($b, 'third')->query_start("SELECT zk_semaphore_acquire('/k/turn', 1)");
	$s{owner}->query("SELECT zk_semaphore_release('/k/turn')");
	is($s{third}->finish, 't', 'holds up others with its turn and its permit, but not for ever');
	thaw($stopped->pid);
	is($stopped->result->{sqlstate}, '40001', 'it is told that it has lost the permit');
};

story 'ZooKeeper is away' => sub {
	my $limited = limited('offline', '1s');
	$limited->query("SELECT zk_lock('/k/away')");
	$proxy->cut;
	$a->wait_lock($limited, 'lost', '/k/away');
	queue($b, 'waiter', '/k/away');
	$proxy->heal;
	is($s{waiter}->finish, 't', 'the lock is lost in time, and free as soon as ZooKeeper hears of it');
};

done_clean($zk, $a, $b);
