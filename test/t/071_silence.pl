# Copyright (c) 2026, zklock contributors
#
# Without ZooKeeper nobody is left in silence: neither who creates the extension, nor who waits
# for a lock or an element of a queue.

use Zklock::Test;

# Leases outlast the tests.
my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '60s', conf => [ "deadlock_timeout = '100ms'", 'log_min_messages = notice' ]);
my $admin = $a->session;

# And if the library is not loaded: 020_every_function.pl
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

subtest 'who waits is told when the connection has just been lost, or the worker' => sub {
	my $worker;
	my %outage = (
		connection => [ 'There is no connection to ZooKeeper.*\.', sub { $a->cut_off($proxy) }, sub { $a->reconnect($proxy) } ],
		worker     => [ 'The zklock worker is not running\.', sub { $worker = $a->worker_away }, sub { $a->worker_back($worker) } ]);
	my ($holder, $waiter, $late) = map { $a->session } 1 .. 3;
	foreach my $what (sort keys %outage)
	{
		my ($obstacle, $begin, $end) = @{ $outage{$what} };
		my $told = qr{NOTICE:  still waiting for ExclusiveLock on ZooKeeper path "/silence/%s"\n.*DETAIL:  $obstacle It has been so since};
		my $mark = $a->log_mark;
		$holder->query("SELECT zk_lock('/silence/$what')");
		$waiter->start_waiting("SELECT zk_lock('/silence/$what')", "/silence/$what");
		$begin->();
		$a->assert_log($mark, qr/${\sprintf $told, $what}/, "$what: who was waiting");
		$late->query_start("SELECT zk_lock('/silence/late', '2s')");
		$a->assert_log($mark, qr/${\sprintf $told, 'late'}/, 'who asks then, for two seconds');
		is($a->value("SELECT lease_remaining > '0' FROM zk_session"), 't', 'while the lease holds');
		is($late->result->{sqlstate}, $what eq 'worker' ? '55000' : '58030', 'then that is an error');
		$end->();
		ok($waiter->busy, 'the other goes on waiting');
		$holder->query("SELECT zk_unlock('/silence/$what')");
		is($waiter->finish, 't', 'and has it in its turn');
		$waiter->query("SELECT zk_unlock('/silence/$what')");
	}
};

done_clean($zk, $a);
