# Copyright (c) 2026, zklock contributors
#
# Without ZooKeeper nobody is left in silence: neither who creates the extension, nor who waits
# for a lock or an element of a queue. A client that does not read what it is told keeps nothing.

use Zklock::Test;

# Leases outlast the tests.
my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '60s', conf => [ "deadlock_timeout = '100ms'", 'log_min_messages = notice' ]);
my $admin = $a->session;

# And if the library is not loaded: sql/every_function.pl
subtest 'CREATE EXTENSION warns if it is not connected' => sub {
	$admin->query('DROP EXTENSION zklock');
	is_deeply($admin->try('CREATE EXTENSION zklock')->{notices}, [], 'all is well: not a word');
	$admin->query('DROP EXTENSION zklock');
	$a->set_conf('zklock.servers' => 'localhost:1');
	$a->wait_log(qr/parameter "zklock.servers" changed to "localhost:1"/, 0);
	$proxy->cut;
	my $warned;
	for (1 .. 600)
	{
		$warned = $admin->try('CREATE EXTENSION zklock')->{notices};
		last if @$warned && $warned->[0] !~ /no worker/;    # the next one takes up the setting
		$admin->query('DROP EXTENSION zklock');
	}
	like($warned->[0], qr/WARNING.*zklock is not connected to ZooKeeper: (?:connecting|down)/, 'no connection: a warning');
	like($warned->[0], qr/HINT:.*"zklock.servers".*zk_session/, 'which says where to look');
	$a->set_conf('zklock.servers' => '127.0.0.1:' . $proxy->port);
	$a->reconnect($proxy);
};

subtest 'who waits is told once that there is no connection, and goes on waiting' => sub {
	my ($s, $mark) = ($a->session, $a->log_mark);
	$a->cut_off($proxy);
	$s->query_start("SELECT zk_lock('/silence')");
	$a->wait_log(qr/NOTICE:  still waiting for ExclusiveLock/, $mark);
	ok($s->busy, 'it waits');
	$proxy->heal;
	is($s->finish, 't', 'and has it when the connection is back');
	my @told = grep { /still waiting for ExclusiveLock on ZooKeeper path "\/silence"/ } split /\n(?=NOTICE)/, $s->notices;
	is(scalar(@told), 1, 'one notice');
	like($told[0], qr/DETAIL:.*There is no connection to ZooKeeper.*It has been so since \d{4}-/, 'says what is in the way, and since when');
	like($told[0], qr/HINT:.*zk_session/, 'and where to look');
	is($s->query("SELECT zk_unlock('/silence')"), 't', 'unlocked');
};

subtest 'so is who waits for an element, from before or since' => sub {
	my $mark = $a->log_mark;
	my %s = map { $_ => $a->session(name => $_) } qw(before since);
	my $take = sub ($name) { $s{$name}->query_start("SELECT convert_from(e, 'UTF8') FROM (SELECT " .
		($name eq 'before' ? "zk_queue_take('/silence-$name') e" : "data e FROM zk_xact_queue_take('/silence-$name')") . ') x'); };
	$take->('before');
	wait_until { $zk->watch_count == 1 } 'it to wait';
	$a->cut_off($proxy);
	$take->('since');
	foreach my $name (sort keys %s)
	{
		$a->wait_log(qr/NOTICE:  still waiting for an element on ZooKeeper path "\/silence-$name"/, $mark);
		ok($s{$name}->busy, "$name: it waits");
	}
	$a->reconnect($proxy);
	foreach my $name (sort keys %s)
	{
		$admin->query("SELECT zk_queue_offer('/silence-$name', 'element')");
		is($s{$name}->finish, 'element', "$name: and has it when the connection is back");
		is(scalar(() = $s{$name}->notices =~ /still waiting for/g), 1, 'one notice');
	}
};

# Who does not wait for others, or lacks a worker, gets an answer soon, and is told nothing before.
subtest 'who waits is told when the connection has just been lost, but not if the worker is away' => sub {
	my $worker;
	my %outage = (
		connection => [ sub { $a->cut_off($proxy) }, sub { $a->reconnect($proxy) } ],
		worker     => [ sub { $worker = $a->worker_away }, sub { $a->worker_back($worker) } ]);
	my ($holder, $waiter, $trier, $late) = map { $a->session } 1 .. 4;
	foreach my $what (sort keys %outage)
	{
		my ($begin, $end) = @{ $outage{$what} };
		my $told = $what eq 'worker' ? 0 : 1;
		my $mark = $a->log_mark;
		$holder->query("SELECT zk_lock('/silence/$what')");
		$waiter->start_waiting("SELECT zk_lock('/silence/$what')", "/silence/$what");
		$begin->();
		$trier->query_start("SELECT zk_try_lock('/silence/try')");
		$late->query_start("SELECT zk_lock('/silence/late', '2s')");
		my $result = $late->result;
		is($a->value("SELECT lease_remaining > '0' FROM zk_session"), 't', "$what: while the lease holds");
		is($result->{sqlstate}, $told ? '58030' : '55000', 'who asks then, for two seconds, gets an error');
		ok($waiter->busy, 'who asked before goes on waiting');
		is($told ? $trier->result->{sqlstate} : $trier->cancelled, $told ? '58030' : '57014', 'who does not wait for others gets an error, or would wait for a worker');
		foreach ([ $waiter, $what, $told ], [ $late, 'late', $told ], [ $trier, 'try', 0 ])
		{
			my ($session, $path, $expected) = @$_;
			is(scalar(() = $session->notices =~ m{NOTICE:  .*: still waiting for ExclusiveLock on ZooKeeper path "/silence/$path"\nDETAIL:  There is no connection to ZooKeeper.*\. It has been so since}g), $expected, "$path: told $expected times");
			is(scalar(() = $a->log_since($mark) =~ m{NOTICE:  still waiting for ExclusiveLock on ZooKeeper path "/silence/$path"}g), $expected, 'and no more');
		}
		$end->();
		$holder->query("SELECT zk_unlock('/silence/$what')");
		is($waiter->finish, 't', 'who waits has it in its turn');
		$waiter->query("SELECT zk_unlock('/silence/$what')");
	}
};

subtest 'a client that does not read what it is told can be terminated, and then holds nothing' => sub {
	my ($deaf, $next) = map { $a->session } 1 .. 2;
	$deaf->query("SELECT zk_lock('/silence/deaf')");
	$a->cut_off($proxy);
	# Each wait is told once, until there is no room for more on the way to the client.
	$deaf->query_start(q{SET deadlock_timeout = '1ms'; DO $$
		BEGIN
			LOOP
				BEGIN
					PERFORM zk_lock('/silence/' || repeat('x', 990), '20ms');
				EXCEPTION WHEN io_error THEN NULL;
				END;
			END LOOP;
		END $$});
	$a->wait_event($deaf, 'ClientWrite');
	ok($a->terminate_backend($deaf->pid), 'it is terminated');
	$a->reconnect($proxy);
	is($next->query("SELECT zk_lock('/silence/deaf') AND zk_unlock('/silence/deaf')"), 't', 'another session has its lock');
};

done_clean($zk, $a);
