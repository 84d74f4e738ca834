# Copyright (c) 2026, zklock contributors
#
# The worker goes and comes back: no session that holds a lock or waits for one may notice.
#
# Locks belong to the ZooKeeper session, and the session outlives the worker: the next
# worker resumes it. So a holder keeps its node and its token, a session that waits keeps
# its place, and what was asked for or given back while no worker ran is done by the next one.
#
# What becomes of sessions when it is killed, or goes with a request under way, is in the table of faults;
# that it ends in all ways during traffic, in 203_exits.pl; and with its server, in 270_shutdown.pl.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT token clean);
use PostgreSQL::Test::Utils;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', a => { timeout => '60s' }, b => { timeout => '20s' });

# Requests are not in shared memory in the order in which they came: what was freed last
# is used first.
my @slots = map { "/w/slot$_" } 1 .. 40;

# As $session->terminate, but without waiting for the process to be gone, which a stopped
# postmaster would never notice.
sub terminate($server, $session)
{
	$server->value("SELECT pg_terminate_backend(" . $session->pid . ")");
	return;
}

subtest 'the worker can be seen in pg_stat_activity' => sub {
	is($a->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'zklock worker'}),
		1, 'one worker in pg_stat_activity');
	is($a->value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock worker'}),
		$a->worker_pid, 'it is the one zk_session names');
	$a->wait_value(
		q{SELECT wait_event_type FROM pg_stat_activity WHERE backend_type = 'zklock worker'},
		'Extension');
	pass('it shows that it waits');
};

subtest 'the worker has no query to cancel' => sub {
	my $log_mark = $a->log_mark;
	my $worker   = $a->worker_pid;
	my $session  = $a->session;
	is($session->query("SELECT zk_lock('/w/cancelled')"), 't', 'a lock is held');
	is($a->value("SELECT pg_cancel_backend($worker)"), 't', 'pg_cancel_backend is sent to the worker');
	is($session->query("SELECT zk_lock('/w/cancelled2')"), 't', 'it still grants locks');
	is($session->query("SELECT zk_unlock('/w/cancelled'), zk_unlock('/w/cancelled2')"), 't|t',
		'and takes them back');
	is($a->worker_pid, $worker, 'it is the same worker');
	unlike($a->log_since($log_mark), qr/zklock worker.*(?:ERROR|FATAL)/, 'and it has nothing to complain of');
};

subtest 'holders and waiting sessions notice nothing of a worker that is terminated' => sub {
	on($a, 'holder')->query('SELECT zk_lock(ARRAY[' . join(',', map { "'$_'" } @slots) . '])');
	$s{holder}->query("SELECT zk_unlock('$_')") foreach @slots;

	hold($a, 'holder', '/w/held');
	hold($a, 'first', '/w/local');
	queue($a, $_, '/w/local') foreach qw(second third);
	hold($b, 'foreigner', '/w/foreign');
	queue($a, 'behind', '/w/foreign');
	queue($a, 'behind2', '/w/foreign');
	hold($a, 'before', '/w/waited');
	queue($b, 'patient', '/w/waited');
	hold($a, 'releaser', '/w/release');
	queue($b, 'heir', '/w/release');
	hold($a, 'leaver', '/w/leave');
	queue($b, 'heir2', '/w/leave');
	in_transaction($a, 'committer', '/w/commit');
	hold($b, 'obstacle', '/w/cancel');
	queue($a, 'canceller', '/w/cancel');
	hold($b, 'obstacle2', '/w/gone');
	queue($a, 'goer', '/w/gone');
	hold($b, 'foreigner2', '/w/missed');
	queue($a, 'behind3', '/w/missed');
	hold($a, 'early', '/w/overtake');
	on($a, $_) foreach qw(newcomer fourth fifth sixth late trier timer);

	my $id     = $a->session_id;
	my $before = holdings($a);
	my $log_mark = $a->log_mark;
	my $old = $a->worker_away;

	is($s{holder}->query('SELECT 1'), 1, 'a holder works on without a worker');
	like($s{holder}->query("SELECT zk_fencing_token('/w/held')"), qr/^\d+$/, 'and has its token');
	is($s{releaser}->query("SELECT zk_unlock('/w/release')"), 't', 'a lock is given back while no worker runs');
	$s{committer}->query('COMMIT');
	terminate($a, $s{leaver});
	is($s{canceller}->cancelled, '57014', 'a wait is cancelled while no worker runs');
	terminate($a, $s{goer});
	is($s{goer}->result->{sqlstate}, '57P01', 'a waiting session is terminated while no worker runs');
	$s{newcomer}->query_start("SELECT zk_lock('/w/new')");
	$a->wait_lock($s{newcomer}, 'requested', '/w/new');
	foreach my $name (qw(fourth fifth sixth))
	{
		$s{$name}->query_start("SELECT zk_lock('/w/local')");
		$a->wait_lock($s{$name}, 'requested', '/w/local');
	}
	$s{foreigner2}->query("SELECT zk_unlock('/w/missed')");
	queue($b, 'meanwhile', '/w/overtake');
	$s{late}->query_start("SELECT zk_lock('/w/overtake')");
	$a->wait_lock($s{late}, 'requested', '/w/overtake');
	$s{trier}->query_start("SELECT zk_try_lock('/w/try')");
	$a->wait_lock($s{trier}, 'requested', '/w/try');
	my $result = $s{timer}->try("SELECT zk_lock('/w/timer', '50ms')");
	is($result->{sqlstate}, '55000', 'a timeout that expires while no worker runs is an error')
	  or diag $result->{error} || $result->{text};

	$a->worker_back($old);
	is($a->session_id, $id, 'the new worker has resumed the session');
	is($s{newcomer}->finish, 't', 'what was asked for meanwhile is granted');
	is($s{trier}->finish, 't', 'also to who does not wait');
	is($s{behind3}->finish, 't', 'the end of a foreign holder is not missed');
	$a->wait_waiting($s{$_}, '/w/local') foreach qw(fourth fifth sixth);
	$a->wait_waiting($s{late}, '/w/overtake');
	is(scalar(grep { $_ eq $id } $zk->owners('/w/held')), 1, 'ZooKeeper sees the same owner');
	my %after = map { $_ => 1 } @{ holdings($a) };
	is_deeply(
		[ grep { !$after{$_} } @$before ],
		[ grep { m{ /w/(?:release|leave|commit) } } @$before ],
		'holders have the same node and token, but for those who released');

	is($s{heir}->finish, 't', 'a release in the absence of the worker lets another server in');
	is($s{heir2}->finish, 't', 'so does the end of a session');
	wait_until { !$zk->children('/w/commit') } 'the committed transaction to leave no node';
	is(scalar($zk->children("/w/$_")), 1, "only the holder is left in /w/$_, not who gave up")
	  foreach qw(cancel gone);

	ok($s{$_}->busy, "$_ still waits") foreach qw(second third fourth fifth sixth behind behind2 patient);
	is(scalar($zk->children('/w/local')), 1, 'one node stands for the local queue');
	is(scalar($zk->children('/w/foreign')), 2, 'and one for those behind the foreigner');

	# Everything is granted in the order of arrival.
	my $token = token('first', '/w/local');
	my @line  = qw(first second third fourth fifth sixth);
	while (@line > 1)
	{
		my $name = shift @line;
		is($s{$name}->query("SELECT zk_unlock('/w/local')"), 't', "$name unlocks");
		is($s{ $line[0] }->finish, 't', "$line[0] is next");
		ok($s{$_}->busy, "$_ waits") foreach @line[ 1 .. $#line ];
		my $next = token($line[0], '/w/local');
		cmp_ok($next, '>', $token, 'its token is higher');
		$token = $next;
	}
	$s{foreigner}->hands_over('/w/foreign', $s{behind}, 'who waited for another server gets the lock');
	ok($s{behind2}->busy, 'and nobody else');
	$s{behind}->hands_over('/w/foreign', $s{behind2}, 'until it is free');
	$s{before}->hands_over('/w/waited', $s{patient}, 'another server gets what was held here');
	$s{early}->hands_over('/w/overtake', $s{meanwhile}, 'a foreigner who came in the absence of the worker is next');
	ok($s{late}->busy, 'who came later waits for it');
	$s{meanwhile}->hands_over('/w/overtake', $s{late}, 'and follows');
	$a->assert_log($log_mark, qr/zklock worker" \(PID $old\) exited with exit code 1/,
		'the worker has left with exit code 1');
	clean($zk, [ $a, $b ]);
};

subtest 'a call that must not wait is answered also if the next worker finds no ZooKeeper' => sub {
	on($a, 'trier');

	# The workers before, each gone after a moment, may not have prolonged the lease.
	$a->wait_value("SELECT lease_remaining > '1s' FROM zk_session", 't');
	$proxy->hold_reply_of($s{trier}, "SELECT zk_try_lock('/w/try')", op => 'getChildren', path => '^/w/try');
	my $old = $a->worker_away;
	$proxy->cut;
	thaw($a->postmaster_pid);
	$a->wait_session('connecting');
	my $result = eval { $s{trier}->result(30) };
	is($result && $result->{sqlstate}, '58030',
		'a worker lost, and ZooKeeper with it: zk_try_lock is an error') or diag $@;
	$a->reconnect($proxy);
	$s{trier}->result unless $result;
	$s{trier}->query('SELECT zk_unlock_all()');
};

subtest 'a server without room for a worker says so' => sub {
	my $none = Zklock::Server->new(
		'none',
		zookeeper => $zk,
		connect   => 0,
		conf      => ['max_worker_processes = 0']);
	is($none->zk_session->{state}, 'no worker', 'a server without worker processes has no worker');
	my @sessions = map { $none->session } 1 .. 3;
	$sessions[0]->query_start("SELECT zk_lock('/w/none')");
	$sessions[1]->query_start("SELECT zk_try_lock('/w/none')");
	$sessions[2]->query_start("SELECT zk_lock('/w/none', '1min')");
	foreach my $i (0 .. 2)
	{
		my $call = (qw(zk_lock zk_try_lock), 'zk_lock with a timeout')[$i];
		fails($sessions[$i]->result, '55000', "$call fails", hint => qr/max_worker_processes/);
	}
	$_->disconnect foreach @sessions;
	# Given-up entries cannot be freed by a worker that does not exist.
	$none->stop;
};

unlike(slurp_file($_->logfile), qr/zklock worker" \(PID \d+\) exited with exit code (?!1\b)|zklock worker.* PANIC/,
	$_->name . ': no worker has ever left with another exit code than 1')
  foreach $a, $b;
done_testing;
