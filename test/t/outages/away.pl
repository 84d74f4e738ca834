# Copyright (c) 2026, zklock contributors
#
# The worker is away for a while, or ZooKeeper is: from the start, during a wait, while locks are held; or it hangs, and
# the network swallows everything. (outages/session_lost.pl is about outages that the session does not survive.)
#
# Locks belong to the ZooKeeper session, and the session outlives the worker: the next worker resumes it. As long as it
# lives, nobody loses a lock or a place. What is asked for or given back meanwhile is done afterwards. While
# ZooKeeper is away, calls that must answer at once fail with SQLSTATE 58030.
#
# What becomes of sessions when the worker is killed, or goes with a request under way, is in the table of faults; that
# it ends in all ways during traffic, in outages/exits.pl; and with its server, in outages/shutdown.pl.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT clean scene undisturbed);
use PostgreSQL::Test::Utils;

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
$proxy->cut;
my $a = Zklock::Server->new(
	'a',
	zookeeper => $proxy,
	connect   => 0,
	conf      => [ "zklock.session_timeout = '60s'", 'log_min_messages = debug1' ]);

subtest 'a server that starts without ZooKeeper waits for it' => sub {
	$a->wait_session('connecting');
	is($a->zk_session->{$_}, undef, "it has no $_")
	  foreach qw(server session_id negotiated_timeout lease_remaining connected_since);
	wait_until { $a->zk_session->{last_error} } 'an error in zk_session';
	like($a->zk_session->{last_error_at}, qr/^\d{4}-/, 'and when there was an error');

	foreach my $call ("zk_try_lock('/u/start')", "zk_lock('/u/start', '0')",
		"zk_lock('/u/start', '50ms')", "zk_try_xact_lock('/u/start')",
		"zk_xact_lock('/u/start', '50ms')", "zk_lock(ARRAY['/u/start', '/u/start2'], '50ms')",
		map { "zk_semaphore_acquire('/u/slots', 1, '$_')" } '0', '50ms')
	{
		my $result = on($a, 'asker')->try("SELECT $call");
		is($result->{sqlstate}, '58030', "$call is an error: nobody knows the answer")
		  or diag explain $result;
	}
	queue($a, 'canceller', '/u/start');
	is($s{canceller}->cancelled, '57014', 'a waiting call can be cancelled');
	queue($a, $_, '/u/start') foreach qw(waiter waiter2 goer);
	$s{goer}->terminate;

	# Attempts to connect go on, and the log does not grow with them.
	wait_until {
		my $n = () = $a->log_since(0) =~ /zklock worker DEBUG:  ZooKeeper client: /g;
		$n >= 10;
	} 'ten attempts to connect';
	my @lines = $a->log_since(0) =~ /^.* zklock worker (?:LOG|WARNING|ERROR|FATAL): .*$/mg;
	is(scalar @lines, 1, 'the server log has one line about it') or diag explain \@lines;
	like($lines[0] || '', qr/refused/i, 'which says what is wrong');

	# What the library is doing at the moment is not what is wrong.
	like($a->zk_session->{last_error}, qr/refused/i, 'zk_session tells why there is no connection');
	like($s{asker}->try("SELECT zk_try_lock('/u/start')")->{detail} || '', qr/refused/i, 'so do errors');

	ok($s{waiter}->busy, 'zk_lock waits for ZooKeeper');
	$proxy->heal;
	is($s{waiter}->finish, 't', 'and gets the lock when ZooKeeper comes');
	$a->wait_session;
	ok($s{waiter2}->busy, 'the next one goes on waiting');
	is(scalar($zk->children('/u/start')), 1, 'who gave up has no node');
	hand_on('/u/start', qw(waiter waiter2));
	clean($zk, [$a]);
};

my $b = Zklock::Server->new('b', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'"]);

# Requests are not in shared memory in the order in which they came: what was freed last is used first.
on($a, 'mixer')->query("SELECT zk_lock((SELECT array_agg('/w/slot' || i) FROM generate_series(1, 40) i))");
$s{mixer}->query("SELECT zk_unlock('/w/slot' || i) FROM generate_series(1, 40) i");

sub no_worker()
{
	my $mark   = $a->log_mark;
	my $worker = $a->worker_away;
	is($a->zk_session->{obstacle}, 'The zklock worker is not running.', 'zk_session says what is in the way');
	return sub {
		$a->worker_back($worker);
		is($a->zk_session->{obstacle}, undef, 'and no more when there is another one');
		$a->assert_log($mark, qr/zklock worker" \(PID $worker\) exited with exit code 1/, 'after one with exit code 1');
	};
}

sub no_zookeeper()
{
	my ($mark, $session) = ($a->log_mark, $a->zk_session);
	$a->cut_off($proxy);
	is($a->zk_session->{$_}, undef, "while ZooKeeper is away there is no $_") foreach qw(server connected_since);
	is($a->session_id, $session->{session_id}, 'but the session');
	return sub {
		$a->reconnect($proxy);
		my @told = $a->log_since($mark) =~ /zklock worker LOG: *(.*)$/mg;
		my %told;
		$told{ /^(?:could not connect to )?ZooKeeper server / ? 'complaint of the library' : $_ }++ foreach @told;
		is_deeply([ grep { $told{$_} > 1 } sort keys %told ], [], 'the log tells each thing of the outage once')
		  or diag explain \@told;
		cmp_ok(scalar(grep { !/proved to be alive/ } @told), '<=', 3, 'and not much, but for the lease')
		  or diag explain \@told;
		cmp_ok($a->zk_session->{reconnects}, '>', $session->{reconnects}, 'zk_session counts reconnects');
	};
}

# What goes away, and returns what brings it back; in which state it leaves a request; what is told who does not wait,
# who does so at last if there is no worker; and whose time is over meanwhile
my %away = (
	worker    => [ \&no_worker,    'requested', '00000', '55000' ],
	ZooKeeper => [ \&no_zookeeper, 'waiting',   '58030', '58030' ]);

foreach my $what (sort keys %away)
{
	subtest "locks and places outlive an absence of the $what" => sub {
		my ($go, $state, $tried, $timed_out) = @{ $away{$what} };
		my ($path, $aside) = map { "$_/$what" } qw(/w /x);
		my $ask = sub ($name, $on) { $a->wait_lock($s{$name}->query_start("SELECT zk_lock('$on')"), $state); };
		scene($a, $b, $path);
		queue($a, 'behind2', "$path/foreign");
		hold($a, $_, "$aside/$_") foreach qw(releaser hander leaver early);
		is($s{releaser}->query("SELECT zk_semaphore_acquire('$aside/permit', 1)"), 't', 'releaser has a permit, too');
		in_transaction($a, 'committer', "$aside/committer");
		queue($a, 'handed', "$aside/hander");
		queue($b, "heir of $_", "$aside/$_") foreach qw(releaser leaver committer);
		foreach my $name (qw(canceller goer lucky))
		{
			hold($b, "before $name", "$aside/$name");
			queue($a, $name, "$aside/$name");
		}
		on($a, $_) foreach qw(newcomer fourth fifth sixth late trier timer);

		my $come_back = $go->();
		is($s{holder}->query("SELECT zk_fencing_token('$path/queue') > 0"), 't', 'a holder has its token');
		is($s{holder}->query("SELECT zk_lock('$path/queue'), zk_unlock('$path/queue')"), 't|t', 'can lock and unlock');
		is($s{releaser}->query("SELECT zk_unlock('$aside/releaser'), zk_semaphore_release('$aside/permit')"),
			't|t', 'a lock and a permit are given back meanwhile');
		is($s{hander}->query("SELECT zk_unlock('$aside/hander')"), 't', 'so is a lock that others here wait for');
		ok($s{committer}->try('COMMIT')->{ok}, 'a transaction that holds a lock commits');
		is($s{canceller}->cancelled, '57014', 'a wait is cancelled');
		# A postmaster that is stopped would never notice that they are gone.
		$a->value('SELECT pg_terminate_backend(' . $s{$_}->pid . ')') foreach qw(leaver goer);
		is($s{goer}->result->{sqlstate}, '57P01', 'a waiting session is terminated');
		is($s{timer}->try("SELECT zk_lock('$path/queue', '50ms')")->{sqlstate}, $timed_out, 'a timeout that expires');
		$ask->('newcomer', "$aside/new");
		$ask->($_, "$path/queue") foreach qw(fourth fifth sixth);
		$s{'before lucky'}->query("SELECT zk_unlock('$aside/lucky')");
		queue($b, 'meanwhile', "$aside/early");
		# A server that cannot hear of others lets who asks here follow its own.
		my @late = $what eq 'worker' ? 'late' : ();
		$ask->($_, "$aside/early") foreach @late;
		$s{trier}->query_start("SELECT zk_try_lock('$aside/try')");
		ok($s{$_}->busy, "$_ waits") foreach qw(behind2), map { "heir of $_" } qw(releaser leaver committer);

		$come_back->();
		undisturbed("the $what is back");
		is($s{newcomer}->finish, 't', 'what was asked for meanwhile is granted');
		is($s{trier}->result->{sqlstate}, $tried, 'who does not wait has been told');
		is($s{$_}->finish, 't', "$_ gets what was released meanwhile")
		  foreach qw(handed lucky), map { "heir of $_" } qw(releaser leaver committer);
		wait_until { !$zk->children("$aside/permit/leases") } 'the permit to be free';
		$a->wait_waiting($s{$_}) foreach qw(fourth fifth sixth), @late;
		is(scalar($zk->children("$aside/$_")), 1, "$_, who gave up, has no node") foreach qw(canceller goer);
		is(scalar($zk->children("$path/foreign")), 2, 'one node stands for those here who wait behind another server');
		hand_on("$path/queue", qw(holder local remote fourth fifth sixth));
		hand_on("$path/foreign", qw(foreigner behind behind2));
		hand_on("$aside/early", qw(early meanwhile), @late);
		is($a->zk_session->{expirations}, 0, 'zk_session counts no expiration');
		clean($zk, [ $a, $b ]);
	};
}

# Silence is noticed in two thirds of the session timeout.
$a->reconfigure('zklock.session_timeout' => scaled('6s'));

foreach my $trouble (qw(hung requests replies both))
{
	subtest "silence that ends before the session does costs nothing: $trouble" => sub {
		my $path = "/u/$trouble";
		scene($a, $b, $path);
		hold($a, 'releaser', "$path-releaser");
		on($a, 'newcomer');
		# The last sign of life before silence: it decides how long the session lives.
		hold($a, 'last', "$path-last");
		$trouble eq 'hung' ? $zk->pause : $proxy->blackhole($trouble);
		$s{newcomer}->query_start("SELECT zk_lock('$path-new')");
		$s{releaser}->query_start("SELECT zk_unlock('$path-releaser')");
		$a->wait_session('connecting');
		is($s{releaser}->finish, 't', "$trouble: zk_unlock returns when the silence is noticed");
		ok($s{newcomer}->busy, 'zk_lock waits');
		$trouble eq 'hung' ? $zk->resume : $proxy->heal;
		is($s{newcomer}->finish, 't', 'and is granted when ZooKeeper speaks again');
		undisturbed($trouble);
		is(scalar($zk->children("$path-new")), 1, 'the new lock has one node');
		wait_until { !$zk->children("$path-releaser") } 'the released lock to be free';
		is(on($b, 'other')->query("SELECT zk_try_lock('$path-releaser')"), 't', 'what was released is free elsewhere');
		clean($zk, [ $a, $b ]);
	};
}

subtest 'a call that must not wait is answered also if the next worker finds no ZooKeeper' => sub {
	on($a, 'trier');

	# The workers before, each gone after a moment, may not have prolonged the lease.
	$a->wait_renewed;
	$proxy->hold_reply_of($s{trier}, "SELECT zk_try_lock('/w/try')", op => 'getChildren', path => '^/w/try');
	$a->worker_away;
	$proxy->cut;
	thaw($a->postmaster_pid);
	$a->wait_session('connecting');
	fails($s{trier}->result, '58030', 'a worker lost, and ZooKeeper with it: zk_try_lock is an error');
	$a->reconnect($proxy);
	all_disconnect();
};

subtest 'a server without room for a worker says so' => sub {
	my $none = Zklock::Server->new('none', zookeeper => $zk, connect => 0, conf => ['max_worker_processes = 0']);
	is($none->zk_session->{state}, 'no worker', 'a server without worker processes has no worker');
	is($none->zk_session->{obstacle}, 'The zklock worker is not running.', 'which is in the way');
	my %call = (
		'waits'          => "zk_lock('/w/none')",
		'tries'          => "zk_try_lock('/w/none')",
		'waits for long' => "zk_lock('/w/none', '1min')",
		'waits for an element' => "zk_queue_take('/w/none')",
		'takes one for long' => "zk_xact_queue_take('/w/none', '1min')",
		'offers one' => "zk_queue_offer('/w/none', 'x')",
		'claims' => "zk_claim('/w/none', now())",
		'looks at contenders' => "zk_contenders('/w/none')",
		'looks who leads' => "zk_leader('/w/none')",
		'breaks locks' => "zk_break_lock('/w/none')",
		'locks persistently' => "zk_lock_persistent('/w/none')");
	# All wait for a worker for as long, 10 s, and say nothing meanwhile.
	on($none, $_)->query("SET statement_timeout = '25s'; SET deadlock_timeout = '1s'") foreach sort keys %call;
	$s{$_}->query_start("SELECT $call{$_}") foreach sort keys %call;
	foreach (sort keys %call)
	{
		fails($s{$_}->result, '55000', "who $_ is told", hint => qr/max_worker_processes/);
		is($s{$_}->notices, '', 'that, and nothing before');
	}
	all_disconnect();
	# Given-up entries cannot be freed by a worker that does not exist.
	$none->stop;
};

unlike(slurp_file($_->logfile), qr/zklock worker" \(PID \d+\) exited with exit code (?!1\b)|zklock worker.* PANIC/,
	$_->name . ': no worker has ever left with another exit code than 1')
  foreach $a, $b;
done_clean($zk, $a, $b);
