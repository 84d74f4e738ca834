# Copyright (c) 2026, zklock contributors
#
# Reservations: the server holds a lock for whoever knows its token, for a time, and no session has it. They queue and
# are lost like any lock; transactions rely on them; the role that made one has it. They outlive sessions and the worker,
# but not the server. What one session sees of that is in sql/reservation.sql; what becomes of them at each fault, in
# the table of faults, faults/faults_of_locks.pl.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT cancel_as_answered freeze_asleep story token unlock);

# A lease that outlasts the tests of a worker that stands still.
my ($zk, $proxy, $a, $b) = cast('a b', zk => { maxSessionTimeout => 600000 }, proxied => 'a', timeout => '2min',
	conf => [ 'zklock.max_locks = 40', "deadlock_timeout = '200ms'", 'log_lock_waits = on', 'log_min_messages = debug1' ]);
$a->value('CREATE TABLE t (i int)');

sub reserve($server, $path, $duration = '1h')
{
	my $token = on($server, 'reserver')->query("SELECT zk_reserve('$path', '$duration', '60s')");
	cmp_ok($token, '>', 0, "$path is reserved for $duration");
	(delete $s{reserver})->disconnect;
	return $token;
}

sub reservation($path) { return ($a->locks("path = '$path' AND scope = 'reservation'"))[0]; }

sub wait_over($path) { return $a->wait_value("SELECT count(*) FROM zk_locks WHERE path = '$path' AND scope = 'reservation'", 0); }

# What the functions do with a token: t, f, or the SQLSTATE
sub renew($server, $path, $token, $duration = '1h') { return outcome($server, "SELECT zk_renew('$path', $token, '$duration')"); }
sub rely($server, $path, $token) { return outcome($server, "SELECT zk_rely('$path', $token) IS NOT NULL"); }
sub unreserve($server, $path, $token) { return outcome($server, "SELECT zk_unreserve('$path', $token)"); }

sub outcome($server, $sql)
{
	my $result = on($server, 'any of ' . $server->name)->try($sql);
	return $result->{ok} ? $result->{text} : $result->{sqlstate};
}

# A transaction that relies on the reservation and has written
sub working($path, $token, @before)
{
	my $session = on($a, "works on $path");
	$session->query($_) foreach @before, 'BEGIN', "SELECT zk_rely('$path', $token)", 'INSERT INTO t VALUES (1)';
	return $session;
}

sub commit_fails($session, $path)
{
	fails($session->try('COMMIT'), '40001', 'the commit is refused', message => qq(reservation of ZooKeeper path "$path" is over));
	is($a->value('SELECT count(*) FROM t'), 0, 'nothing of the transaction is left');
	return;
}

story 'no session holds it, and any has it who knows the token' => sub {
	my $path = '/r/any';
	my $token = reserve($a, $path);
	my $row = reservation($path);
	is($row->{pid}, undef, 'zk_locks has no pid');
	is("@{$row}{qw(kind mode state granted count fencing_token)}", "lock exclusive held t 1 $token", 'but the lock');
	is($a->value("SELECT expires_at - granted_at FROM zk_locks WHERE path = '$path'"), '01:00:00', 'and its end');
	is($a->value("SELECT pid IS NULL AND granted AND fencing_token = $token FROM zk_contenders('$path')"), 't', 'so has zk_contenders');
	queue($a, 'local', $path);
	my $waiting = ($a->locks('pid = ' . $s{local}->pid))[0];
	is_deeply([ @{$waiting}{qw(blocked_by_pid blocked_by_node)} ], [ undef, $row->{node} ], 'who waits, waits for its node');
	$a->wait_log(qr/Process holding the lock: a reservation\./);
	queue($b, 'remote', $path);
	is(renew($a, $path, $token, '2h'), 't', 'another session renews it');
	cmp_ok(reservation($path)->{expires_at}, 'gt', $row->{expires_at}, 'its end moves');
	is(outcome($a, 'DISCARD ALL'), '', 'a session forgets everything');
	is(outcome($a, "SELECT zk_try_lock('$path')"), 'f', 'it is held');
	is(renew($a, $path, $token - 1), 'f', 'another token is none');
	ok($s{$_}->busy, "$_ waits") foreach qw(local remote);
	is(unreserve($a, $path, $token), 't', 'another session ends it');
	is($s{local}->finish, 't', 'the next one has the lock');
	cmp_ok(token('local', $path), '>', $token, 'with a higher token');
	is(renew($a, $path, $token), 'f', 'it is over');
	is(unreserve($a, $path, $token), 'f', 'and stays so');
	is(rely($a, $path, $token), '40001', 'nobody relies on it');
	unlock('local', $path);
	is($s{remote}->finish, 't', 'those behind it follow');
};

story 'two reservations are two contenders, and a session waits for its own' => sub {
	my $session = on($a, 'one');
	my $token = $session->query("SELECT zk_reserve('/r/two', '1h')");
	is($session->query("SELECT zk_reserve('/r/two', '1h', '0') IS NULL"), 't', 'without waiting');
	is($session->query("SELECT zk_reserve('/r/two', '1h', '10ms') IS NULL"), 't', 'nor with');
	is($session->query("SELECT zk_try_lock('/r/two')"), 'f', 'nor does it have the lock');
	on($a, 'two')->start_queued("SELECT zk_reserve('/r/two', '1h')", '/r/two');
	is($session->query("SELECT zk_unreserve('/r/two', $token)"), 't', 'when it is over');
	cmp_ok(my $next = $s{two}->finish, '>', $token, 'the next one is another');
	is(renew($a, '/r/two', $token), 'f', 'of which the first token is none');
	is(unreserve($a, '/r/two', $next), 't', 'but its own is');
};

story 'it ends by itself, unless it is renewed' => sub {
	my $early = reserve($a, '/r/early', '2s');
	is(renew($a, '/r/early', $early), 't', 'one is renewed');
	my $later = reserve($a, '/r/later', '2s');
	my $mark = $a->log_mark;
	my $losses = $a->value(q(SELECT sum(losses) FROM zk_stats));
	my $expires = reservation('/r/later')->{expires_at};
	queue($b, 'waiter', '/r/later');
	is($s{waiter}->finish, 't', 'the other ends');
	cmp_ok($b->value("SELECT granted_at FROM zk_locks WHERE path = '/r/later'"), 'ge', $expires, 'not before its time');
	cmp_ok(token('waiter', '/r/later'), '>', $later, 'then somebody else has a higher token');
	is(renew($a, '/r/later', $later), 'f', 'it cannot be renewed any more');
	ok(reservation('/r/early'), 'the one that was renewed is there');
	is(renew($a, '/r/early', $early, '1s'), 't', 'it is to end sooner');
	is(on($b, 'next')->query("SELECT zk_lock('/r/early')"), 't', 'and does');
	$a->assert_log($mark, qr{LOG:  reservations were not renewed in time\n.*DETAIL:  Reservations: 1\.\n\s*The reservation of "$_" is over\.},
		"the log names $_") foreach qw(/r/later /r/early);
	is($a->value(q(SELECT sum(losses) FROM zk_stats)), $losses, 'neither counts as lost');
	unlike($a->log_since($mark), qr/WARNING/, 'nor is there a warning');
};

story 'a transaction relies on it' => sub {
	my $path = '/r/rely';
	my $token = reserve($a, $path);
	foreach my $guard (qw(lease quorum))
	{
		my $session = working($path, $token, "SET zklock.commit_guard = $guard");
		is(renew($a, $path, $token), 't', "$guard: that it is renewed meanwhile");
		ok($session->try('COMMIT')->{ok}, 'does not matter');
	}
	is($a->value('SELECT count(*) FROM t'), 2, 'it has committed');
	$a->value('DELETE FROM t');

	my $session = working($path, $token);
	is(unreserve($a, $path, $token), 't', 'it ends before the commit');
	commit_fails($session, $path);

	$token = reserve($a, $path);
	$session->query($_) foreach 'BEGIN', "SELECT zk_rely('$path', $token)";
	unreserve($a, $path, $token);
	fails($session->try('COMMIT'), '40001', 'one that has read is refused as well');

	$session->query('BEGIN');
	$session->query("DO \$\$ BEGIN PERFORM zk_rely('$path', $token); EXCEPTION WHEN serialization_failure THEN NULL; END \$\$");
	ok($session->try('COMMIT')->{ok}, 'one that was told so, and went on without, is not');

	$token = reserve($a, $path);
	$session = working($path, $token);
	renew($a, $path, $token, '300ms');
	wait_over($path);
	commit_fails($session, $path);

	$token = reserve($a, $path, '2s');
	$session = working($path, $token);
	freeze($a->worker_pid);
	$a->wait_value("SELECT state FROM zk_locks WHERE path = '$path'", 'lost');
	is(renew($a, $path, $token), '58030', 'a worker that stands still prolongs nothing');
	commit_fails($session, $path);
	thaw($a->worker_pid);
	wait_over($path);
};

story 'it is lost like any lock' => sub {
	foreach my $guard (qw(lease quorum))
	{
		my $path  = "/r/broken_$guard";
		my $token = reserve($a, $path);
		my $mark = $a->log_mark;
		my $session = working($path, $token, "SET zklock.commit_guard = $guard");
		queue($b, $path, $path);
		is($b->value("SELECT zk_break_lock('$path')"), 't', 'somebody breaks it');
		is($s{$path}->finish, 't', 'the next one has the lock');
		wait_over($path);
		$a->assert_log($mark, qr/The reservation of "\Q$path\E" is over\./, 'the log names it');
		commit_fails($session, $path);
	}
	my $token = reserve($a, '/r/session');
	my $session = working('/r/session', $token);
	$a->expire_session($zk);
	wait_over('/r/session');
	commit_fails($session, '/r/session');
	$a->wait_session;
	is(renew($a, '/r/session', $token), 'f', 'so it is with the ZooKeeper session');
};

story 'it survives the worker' => sub {
	my $token = reserve($a, '/r/worker', '1h');
	my $expires = reservation('/r/worker')->{expires_at};
	my $short = reserve($a, '/r/short', '5s');
	queue($b, 'waiter', '/r/worker');
	queue($b, 'other', '/r/short');
	$a->restart_worker;
	$a->wait_session;
	is(reservation('/r/worker')->{expires_at}, $expires, 'its end is where it was');
	is($s{other}->finish, 't', 'the next worker ends what it finds');
	ok($s{waiter}->busy, 'and no more');
	is(renew($a, '/r/worker', $token), 't', 'it can be renewed');
	is(unreserve($a, '/r/worker', $token), 't', 'and ended');
	is($s{waiter}->finish, 't', 'then the next one has the lock');
};

story 'a call that ends as it is granted leaves nothing' => sub {
	my $path = '/r/cancel';
	foreach my $how (qw(cancel terminate))
	{
		hold($b, 'holder', $path);
		my $asker = on($a, $how);
		$asker->start_queued("SELECT zk_reserve('$path', '1h')", $path);
		my $granted = sub {
			unlock('holder', $path);
			$a->wait_holder($asker, $path);
		};
		if ($how eq 'cancel')
		{
			cancel_as_answered($asker, $granted);
			is($asker->result->{sqlstate}, '57014', 'it is cancelled');
		}
		else
		{
			freeze_asleep($asker);
			$granted->();
			$a->value('SELECT pg_terminate_backend(' . $asker->pid . ')');
			thaw($asker->pid);
			is($asker->result->{sqlstate}, '57P01', 'it is terminated');
		}
		is($s{holder}->query("SELECT zk_lock('$path', '60s')"), 't', "$how: others have the lock");
		wait_over($path);
		unlock('holder', $path);
	}
};

story 'another server has none of it' => sub {
	my $token = reserve($a, '/r/here');
	my $call = sub ($call) { return on($b, 'elsewhere')->try("SELECT $call"); };
	fails($call->("zk_renew('/r/here', $token, '1h')"), '55000', 'it cannot be renewed there',
		message => 'the reservation of ZooKeeper path "/r/here" is not this server\'s', hint => qr/belongs to the server where it was made/);
	fails($call->("zk_$_('/r/here', $token)"), '55000', "nor: $_") foreach qw(rely unreserve);
	is(renew($b, '/r/here', $token - 4096), 'f', 'another token is over there, too');
	is(unreserve($a, '/r/here', $token), 't', 'where it was made it is ended');
	is(renew($b, '/r/here', $token), 'f', 'then it is over everywhere');
	is(rely($b, '/r/here', $token), '40001', 'and nobody relies on it');
};

story 'the role that has reserved has it, its members, and superusers' => sub {
	$a->value("CREATE ROLE $_") foreach qw(app member stranger);
	$a->value('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO app, member, stranger');
	$a->value('GRANT app TO member');
	my $as = sub ($role, $sql) { return on($a, "role $role")->query("SET ROLE $role") . outcome_of($s{"role $role"}->try("SELECT $sql")); };
	my $token = $as->('app', "zk_reserve('/r/role', '1h')");
	is($as->('stranger', "zk_renew('/r/role', $token, '1h')"), '42501', 'a stranger cannot renew it');
	is($as->('stranger', "zk_$_('/r/role', $token)"), '42501', "nor: $_") foreach qw(rely unreserve);
	is($as->('stranger', "count(path) FROM zk_locks WHERE mode = 'exclusive'"), 0, 'nor see where it is');
	is($as->('app', "zk_renew('/r/role', $token, '1h')"), 't', 'the role can');
	is($as->('member', "zk_renew('/r/role', $token, '1h')"), 't', 'so can a member');
	is(renew($a, '/r/role', $token), 't', 'and a superuser');
	is($as->('member', "zk_unreserve('/r/role', $token)"), 't', 'who may end it');
};

sub outcome_of($result) { return $result->{ok} ? $result->{text} : $result->{sqlstate}; }

story 'a role has its share, and all roles have half' => sub {
	my $as = sub ($role, $path) {
		my $session = on($a, "$path of $role");
		$session->query("SET ROLE $role");
		my $result = $session->try("SELECT zk_reserve('$path', '1h')");
		$session->disconnect;
		delete $s{"$path of $role"};
		return $result;
	};
	my $n = 0;
	$n++ while $n < 40 && $as->('app', "/r/share/$n")->{ok};
	is($n, 16, 'a role has as many as one session may have locks');
	fails($as->('app', '/r/share/more'), '53200', 'and no more, from any session', message => 'too many ZooKeeper reservations', detail => 'Role "app" may have 16.');
	$n++ while $n < 40 && $as->('stranger', "/r/share/$n")->{ok};
	is($n, 20, 'all roles have half of the entries');
	fails($as->('stranger', '/r/share/more'), '53200', 'and no more', message => 'too many ZooKeeper reservations', detail => 'All roles together may have 20.');
	is($a->lock_count("path = '/r/share/more' AND state <> 'releasing'"), 0, 'nothing is left of what was refused');
	is(on($a, 'locker')->query("SELECT zk_lock('/r/share/lock')"), 't', 'sessions can lock');
	$a->value("SELECT count(zk_unreserve(path, fencing_token)) FROM zk_locks WHERE scope = 'reservation'");
	wait_until { ok_again($as->('app', '/r/share/again')) } 'the role to have room again';
	$a->value("SELECT zk_unreserve(path, fencing_token) FROM zk_locks WHERE scope = 'reservation'");
};

sub ok_again($result) { return $result->{ok}; }

story 'waiting for one is part of a deadlock, what is reserved is not' => sub {
	hold($a, 'x', '/r/d1');
	hold($a, 'y', '/r/d2');
	$s{x}->start_queued("SELECT zk_reserve('/r/d2', '1h')", '/r/d2');
	$s{y}->query_start("SELECT zk_lock('/r/d1')");
	is($s{y}->result->{sqlstate}, '40P01', 'a session that wants to reserve what another has, which waits for it');
	$s{y}->query('SELECT zk_unlock_all()');
	my $token = $s{x}->finish;
	my $mark = $a->log_mark;
	$s{y}->start_queued("SELECT zk_lock('/r/d1')", '/r/d1');
	hold($a, 'z', '/r/d3');
	$s{x}->start_queued("SELECT zk_lock('/r/d3')", '/r/d3');
	$s{z}->start_queued("SELECT zk_lock('/r/d2')", '/r/d2');
	$a->wait_log(qr{still waiting for ExclusiveLock on ZooKeeper path "$_"}, $mark) foreach qw(/r/d1 /r/d2 /r/d3);
	ok($s{$_}->busy, "$_ waits: anybody can end a reservation") foreach qw(x y z);
	is(unreserve($a, '/r/d2', $token), 't', 'when that is done');
	is($s{z}->finish, 't', 'one has its lock');
	$s{z}->query('SELECT zk_unlock_all()');
	is($s{x}->finish, 't', 'and then the other');
	$s{x}->query('SELECT zk_unlock_all()');
	is($s{y}->finish, 't', 'and the last');
};

story 'its token fences' => sub {
	my $first = reserve($a, '/r/fence');
	is(outcome($a, "SELECT zk_fence('/r/fence', $first) IS NOT NULL"), 't', 'the first token is seen');
	unreserve($a, '/r/fence', $first);
	my $second = reserve($a, '/r/fence');
	is(outcome($a, "SELECT zk_fence('/r/fence', $second) IS NOT NULL"), 't', 'then the second');
	is(outcome($a, "SELECT zk_fence('/r/fence', $first)"), '40001', 'the first is refused');
	unreserve($a, '/r/fence', $second);
};

story 'ZooKeeper is away' => sub {
	my $token = reserve($a, '/r/away');
	$a->cut_off($proxy);
	is(outcome($a, "SELECT zk_reserve('/r/new', '1h', '0')"), '58030', 'nothing new can be reserved');
	is(renew($a, '/r/away', $token), 't', 'what is reserved can be renewed');
	is(renew($a, '/r/away', $token - 1), '58030', 'of other tokens nothing is known');
	$a->reconnect($proxy);
	is(unreserve($a, '/r/away', $token), 't', 'it is still there');
};

subtest 'one that is over before the call returns is not blamed on a setting' => sub {
	my $result;
	my $s = on($a, 'brief');
	wait_until { $result = $s->try("SELECT zk_reserve('/r/brief', '1ms')"); !$result->{ok} } 'a call that takes longer than that';
	fails($result, '40001', 'an error', detail => 'The reservation of 1 ms was over before the call returned.');
	wait_over('/r/brief');
};

subtest 'a server that stops ends them, but not while a transaction relies on one' => sub {
	my $token = reserve($a, '/r/stop');
	my $free  = reserve($a, '/r/free');
	my $session = working('/r/stop', $token);
	my $mark = $a->log_mark;
	queue($b, 'heir', '/r/stop');
	freeze($session->pid);
	$a->begin_stop('fast');
	$a->wait_log(qr/zklock worker waits until all locks are released/, $mark);
	ok($s{heir}->busy, 'while the transaction has not ended, nobody gets the lock');
	thaw($session->pid);
	is($s{heir}->finish, 't', 'then the next one does');
	$a->wait_stopped;
	is(on($b, 'another')->query("SELECT zk_lock('/r/free')"), 't', 'all have ended with the server');
	unlike($a->log_since($mark), qr/locks still held/, 'nothing was waited for in vain');
	all_disconnect();
	$a->start_connected;
	is(renew($a, '/r/stop', $token), 'f', 'it is over');
};

subtest 'so does a crash' => sub {
	my $token = reserve($a, '/r/crash');
	queue($b, 'heir', '/r/crash');
	my $mark = $a->log_mark;
	kill 'KILL', on($a, 'victim')->pid;
	$a->wait_log(qr/all server processes terminated; reinitializing/, $mark);
	is($s{heir}->finish, 't', 'the next one has the lock');
	all_disconnect();
	wait_until { eval { $a->value('SELECT 1') } } 'the server to be back';
	$a->wait_session;
	is(renew($a, '/r/crash', $token), 'f', 'it is over');
	all_disconnect();
};

done_clean($zk, $a, $b);
