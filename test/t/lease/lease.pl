# Copyright (c) 2026, zklock contributors
#
# The lease and the commit guard: a transaction that relied on a lock commits only while the
# lock is proved to be held, whichever process has been stopped meanwhile, and however many heartbeats, which prove
# it, are lost or held up. A session-level lock may have been lost when it is released, before the commit of what was
# written under it. sql/guard.sql has locks whose nodes are deleted, and which guard counts for whom.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
use Zklock::Cast qw(:DEFAULT lost clean scene undisturbed scene_ends);
use Zklock::Util qw(children_of);

my ($zk, $short_proxy, $proxy, $a, $b, $c) = cast('a b c',
	proxied => 'a c', a => { timeout => '4s' }, b => { timeout => '30s' }, c => { timeout => '15s' });
$_->value('CREATE TABLE t (i int)') foreach $a, $c;

$_->wait_value("SELECT lease_remaining > '0' AND lease_remaining < negotiated_timeout FROM zk_session", 't') foreach $a, $b, $c;

subtest 'a server that is stopped for longer than a session timeout has lost its locks' => sub {
	my $postmaster = $a->postmaster_pid;
	my %stopped    = ('the worker' => sub { $a->worker_pid }, 'all of the server' => sub { $postmaster, children_of($postmaster) });
	foreach my $who (sort keys %stopped)
	{
		my $path = '/l/' . ($who =~ s/\W+/-/gr);
		in_transaction($a, 'xact', $path, 'INSERT INTO t VALUES (1)');
		hold($a, 'session', "$path-session");
		$s{session}->query('BEGIN; INSERT INTO t VALUES (1)');
		# Another one is granted to a session that is stopped before it hears of that.
		hold($a, 'hander', $_) foreach "$path-hander", "$path-late";
		queue($a, 'late', "$path-late");
		freeze($s{late}->pid);
		is($s{hander}->query("SELECT zk_unlock('$path-late')"), 't', 'a lock is handed over');
		$a->wait_holder($s{late}, "$path-late");
		on($b, 'next');
		my $token = $s{xact}->query("SELECT zk_fencing_token('$path')");
		my @pids  = $stopped{$who}->();
		cmp_ok(scalar(@pids), '>', 5, 'all its processes') if $who ne 'the worker';

		freeze(@pids);
		is($s{next}->query("SELECT zk_lock('$path')"), 't', "when $who is stopped, another server gets the lock in the end");
		cmp_ok($s{next}->query("SELECT zk_fencing_token('$path')"), '>', $token, 'with a higher token');
		if ($who eq 'the worker')
		{
			# The clock alone has told.
			is($a->value("SELECT lease_remaining FROM zk_session"), '00:00:00', 'no lease is left');
			wait_until { $a->zk_session->{obstacle} =~ /^The zklock worker has been stopped/ } 'zk_session to say that it is not ZooKeeper';
			is($a->wait_lock($s{$_}, 'lost')->{granted}, 'f', "$_ has lost its lock, says zk_locks") foreach qw(xact session);
			fails($s{hander}->try("SELECT $_('$path-hander')"), '40001', "lost for $_",
				detail => 'The ZooKeeper session was not proved to be alive for a session timeout.')
			  foreach qw(zk_fencing_token zk_lock);
			thaw($s{late}->pid);
			fails($a->session->try("SELECT zk_try_lock('/l/other')"), '58030', 'who does not wait is told at once');
			is($s{xact}->try('COMMIT')->{sqlstate}, '40001', 'the transaction cannot commit');
		}
		thaw(@pids);
		is($s{late}->result->{sqlstate}, '40001', 'who hears too late that a lock was granted has lost it');
		is($s{xact}->try('COMMIT')->{sqlstate}, '40001', 'afterwards the transaction cannot commit') if $who ne 'the worker';
		is($s{session}->try('COMMIT')->{sqlstate}, '40001', 'nor who has written under a lock of the session');
		is($a->value('SELECT count(*) FROM t'), 0, 'nothing has been written');
		lost($a, 'session', "$path-session");
		$a->wait_session;
		clean($zk, [ $a, $b ]);
	}
};

my ($xact, $waiter, $holder) = map { $c->session } 1 .. 3;
scene($c, $b, '/h');

# What keeps the server from proving that its session lives, for a while. The session itself lives on.
my %unproved = (
	'stopped' => sub {
		my $worker = $c->worker_pid;
		freeze($worker);
		$proxy->sustain;
		return sub { thaw($worker); $proxy->heal };
	},
	'cut off' => sub {
		$proxy->sustain;
		$c->cut_off($proxy);
		return sub { $c->reconnect($proxy) };
	},
	map {
		my ($how, @more) = @$_;
		("without heartbeats: $how" => sub {
				$proxy->$how(op => 'multi', times => 0, @more);
				return sub { $proxy->clear; $c->reconnect($proxy) };
			})
	} ['hold_reply'], ['hold_request'], [ 'refuse', code => -127 ]);

foreach my $how (sort keys %unproved)
{
	subtest "a server that is $how for a shorter time keeps its locks, and commits wait" => sub {
		my $id = $c->session_id;
		$c->value('TRUNCATE t');
		my ($twice, $writer, $canceller, $reader, $bystander, $asker) = map { $c->session } 1 .. 6;
		$twice->query("BEGIN; SELECT txid_current(), zk_lock('/l/twice'), zk_lock('/l/twice')");
		$xact->query("BEGIN; SELECT zk_xact_lock('/l/short')");
		$holder->query("SELECT zk_lock('/l/free')");
		$waiter->start_waiting("SELECT zk_lock('/l/free')");
		$_->query("SELECT zk_lock('/l/session-" . $_->pid . "')") foreach $writer, $canceller, $reader;
		$_->query('BEGIN; INSERT INTO t VALUES (2)') foreach $writer, $canceller;
		my $mark = $c->log_mark;
		my $prove = $unproved{$how}->();
		ok($c->wait_lock($xact, 'suspended', '/l/short'), 'without proof the lock is suspended');
		is($c->lock_count("state = 'suspended'"), 7, 'and so are all others');
		isnt($c->zk_session->{obstacle}, undef, 'zk_session says what is in the way');
		$_->query_start('COMMIT') foreach $xact, $writer, $canceller;
		$c->wait_event($_, 'guard') foreach $xact, $writer, $canceller;
		ok($_->busy, 'and the commit waits') foreach $xact, $writer;
		is($canceller->cancelled, '57014', 'which can be cancelled, and is then rolled back');
		ok($reader->try('SELECT count(*) FROM t')->{ok}, 'who only reads is not kept');
		ok($bystander->try('INSERT INTO t VALUES (2)')->{ok}, 'nor who holds no lock');
		$holder->query_start("SELECT zk_unlock('/l/free')");
		ok($holder->result->{ok}, 'who unlocks does not wait for it');
		is(($c->locks('pid = ' . $waiter->pid))[0]{state}, 'waiting', 'but nobody gets the lock');
		ok($waiter->busy, 'or is told so');
		fails($asker->try("SELECT $_"), '58030', "who does not wait for long is told: $_")
		  foreach "zk_try_lock('/l/other')", "zk_lock('/h/queue', '50ms')";
		if ($how ne 'stopped')
		{
			$asker->start_waiting("SELECT zk_lock('/h/foreign')");
			is($asker->cancelled, '57014', 'a wait is cancelled');
		}
		is($twice->query("SELECT zk_unlock('/l/twice')"), 't', 'who has locked twice unlocks once');
		$prove->();
		ok($_->result->{ok}, 'until the proof is there: the transaction commits') foreach $xact, $writer;
		ok($twice->try('COMMIT')->{ok}, 'and so does that of who still has the lock');
		is($c->value('SELECT count(*) FROM t'), 2, 'the cancelled one has not');
		is($c->wait_holder($reader)->{granted}, 't', 'what is held at session level is held again');
		$_->disconnect foreach $twice, $writer, $canceller, $reader, $bystander, $asker;
		is($waiter->finish, 't', 'the waiter gets its lock');
		$c->wait_lock($waiter, 'held', '/l/free');
		is($c->session_id, $id, 'all in one session');
		$c->assert_log($mark, qr/no longer proved to be alive.*proved to be alive again/s, 'the log tells of both');
		$waiter->query("SELECT zk_unlock('/l/free')");
		undisturbed($how);
	};
}

subtest 'heartbeats are lost, many at once and a few now and then' => sub {
	foreach my $round (1, 2)
	{
		$proxy->reset_counts;
		$proxy->hold_reply(op => 'multi', times => 0);
		wait_until { ($proxy->counts->{multi} || 0) >= 32 } 'as many heartbeats as may be outstanding';
		$proxy->clear;
		$proxy->drop;
		undisturbed("all heartbeats are lost with their connection, round $round");
	}
	foreach my $lose (qw(lose_reply lose_request))
	{
		my $reconnects = $c->zk_session->{reconnects};
		$proxy->$lose(op => 'multi', nth => $_) foreach 1 .. 3;
		wait_until { $c->zk_session->{reconnects} >= $reconnects + 3 } 'three to be lost';
		$proxy->clear;
		undisturbed("$lose, now and then");
	}
	# Each of the first heartbeats on a new connection
	foreach my $nth (1 .. 4)
	{
		my $fault = $proxy->hold_reply(op => 'multi', nth => $nth);
		$proxy->drop;
		$proxy->fired($fault);
		$proxy->heal;
		undisturbed("heartbeat $nth of a connection held up");
	}
};

subtest 'heartbeats are lost at each step of a transaction whose guard writes' => sub {
	$xact->query('SET zklock.commit_guard = quorum');
	foreach my $lose (qw(lose_reply lose_request))
	{
		foreach my $step ([ lock => '' ], [ write => '' ], [ commit => '^/h/step' ], [ unlock => '' ])
		{
			my ($name, $path) = @$step;
			my $fault;
			my $strike = sub {
				return unless $name eq $_[0];
				$fault = $proxy->$lose(op => 'multi', path => $path, any => 1);
				# Heartbeats come by themselves, a check at commit.
				$proxy->fired($fault) unless $path;
			};
			$strike->('lock');
			$xact->query('BEGIN');
			is($xact->query("SELECT zk_xact_lock('/h/step')"), 't', "$lose, $name: locked");
			$strike->('write');
			$xact->query('INSERT INTO t VALUES (2)');
			$strike->('commit');
			ok($xact->try('COMMIT')->{ok}, 'committed');
			$strike->('unlock');
			$proxy->fired($fault);
			wait_until { !$zk->children('/h/step') } 'the lock to be free';
		}
	}
	undisturbed('after all this');
	scene_ends();
};

sub checks($path)
{
	return scalar grep { $_->[0] eq 'multi' && $_->[1] =~ /^\Q$path\E\// } @{ $proxy->requests };
}

sub transaction($guard, $path)
{
	$xact->query("SET zklock.commit_guard = $guard");
	return $xact->query("BEGIN; SELECT zk_xact_lock('$path'); INSERT INTO t VALUES (1)");
}

subtest 'zklock.commit_guard tells whether a commit asks ZooKeeper' => sub {
	is($c->value("SELECT setting FROM pg_settings WHERE name = 'zklock.commit_guard'"), 'lease', 'the default guard');
	foreach my $guard (qw(lease quorum off))
	{
		my $path = "/g/$guard";
		transaction($guard, $path);
		$xact->query('COMMIT');
		is(checks($path), $guard eq 'quorum' ? 1 : 0, "$guard: checks of the node");
	}
};

subtest 'a quorum is asked for all locks that a transaction relied on' => sub {
	$xact->query('SET zklock.commit_guard = quorum');
	$xact->query("BEGIN; SELECT zk_xact_lock(ARRAY['/g/q1', '/g/q2']), zk_lock('/g/q3')");
	ok($xact->try('COMMIT')->{ok}, 'quorum: a transaction with several locks');
	is_deeply([ map { checks("/g/q$_") } 1 .. 3 ], [ 1, 1, 0 ], 'asks for those it relied on');
	$xact->query('BEGIN; INSERT INTO t VALUES (1)');
	ok($xact->try('COMMIT')->{ok}, 'one that has only written');
	is(checks('/g/q3'), 1, "for the session's");
	$xact->query("SELECT zk_unlock('/g/q3')");
};

subtest 'a commit trusts the lease, or waits for the answer of a quorum' => sub {
	# Nobody has heard yet that the node is gone.
	foreach my $guard (qw(lease quorum))
	{
		my $path = "/g/gone-$guard";
		transaction($guard, $path);
		$c->wait_value("SELECT lease_remaining > '5s' FROM zk_session", 't');
		my ($node) = $zk->children($path);
		$proxy->blackhole('replies');
		$zk->shell->delete("$path/$node");
		$xact->query_start('COMMIT');
		if ($guard eq 'quorum')
		{
			wait_until { checks($path) } 'the check to be sent';
			ok($xact->busy, 'quorum: a commit waits for the answer');
			$proxy->heal;
		}
		is($xact->result->{sqlstate}, $guard eq 'quorum' ? '40001' : '00000', "$guard: the commit trusts what is known");
		$proxy->heal;
	}
};

subtest 'a quorum is asked again until it has answered' => sub {
	transaction('quorum', '/g/refused');
	my $fault = $proxy->refuse(op => 'multi', code => -127, path => '^/g/refused');
	ok($xact->try('COMMIT')->{ok}, 'quorum: the check is sent again if its answer is an error');
	ok($proxy->has_fired($fault), 'as it was');
	cmp_ok(checks('/g/refused'), '>=', 2, 'which proves nothing');
	transaction('quorum', '/g/restart');
	$proxy->hold_reply_of($xact, 'COMMIT', op => 'multi', path => '^/g/restart');
	$c->restart_worker;
	$proxy->heal;
	ok($xact->result->{ok}, 'or by a new worker');
	transaction('quorum', '/g/cancel');
	$proxy->blackhole('replies');
	$xact->query_start('COMMIT');
	wait_until { checks('/g/cancel') } 'the check to be sent';
	is($xact->cancelled, '57014', 'a commit that waits for it can be cancelled');
	$c->reconnect($proxy);
};

subtest 'what was written under a lock that is not proved is not committed, though unlocked meanwhile' => sub {
	foreach my $unlock ("zk_unlock('/u/suspended')", 'zk_unlock_all()')
	{
		my ($writer, $reader, $next) = ($a->session, $a->session, $b->session);
		$writer->query("BEGIN; SELECT zk_lock('/u/suspended'); INSERT INTO t VALUES (1)");
		$reader->query("BEGIN; SELECT zk_lock('/u/read')");
		$next->start_waiting("SELECT zk_lock('/u/suspended')");
		$short_proxy->cut;
		is($next->finish, 't', 'another server gets it');
		ok($reader->try('SELECT zk_unlock_all()')->{ok}, 'locks can be unlocked without ZooKeeper');
		ok($writer->try("SELECT $unlock")->{ok}, "by $unlock as well");
		is($writer->try('COMMIT')->{sqlstate}, '40001', 'but what was written under it is not committed');
		ok($reader->try('COMMIT')->{ok}, 'who has only read may commit');
		ok($writer->try('INSERT INTO t VALUES (2)')->{ok}, 'and so may the next transaction');
		$a->reconnect($short_proxy);
	}
	is($a->value('SELECT count(*) FROM t WHERE i = 1'), 0, 'nothing has been written');
};

subtest 'a lock keeps the guard that it was taken under: with "quorum" its node is looked at' => sub {
	$xact->query('BEGIN');
	foreach my $guard (qw(quorum lease))
	{
		$xact->query("SET LOCAL zklock.commit_guard = $guard");
		$xact->query("SELECT zk_xact_lock('/cg/$guard')");
	}
	ok($xact->try('COMMIT')->{ok}, 'the transaction commits');
	is_deeply([ checks('/cg/quorum'), checks('/cg/lease') ], [ 1, 0 ], 'only that of the lock that was taken under "quorum"');
};

subtest 'a machine that is paused, and its clock with it, commits too late, but not with "quorum" or a fence' => sub {
	my $directory = PostgreSQL::Test::Utils::tempdir;
	my $library   = "$directory/paused_clock.so";
	system_or_bail('gcc', '-shared', '-fPIC', '-o', $library, 'test/preload/paused_clock.c', '-ldl');
	local $ENV{PAUSED_CLOCK}   = "$directory/paused_for";
	local $ENV{ZKLOCK_PRELOAD} = join(' ', $library, $ENV{ZKLOCK_PRELOAD} // ());
	my $machine = Zklock::Server->new('machine', zookeeper => $zk, conf => ["zklock.session_timeout = '6s'"]);
	$machine->value('CREATE TABLE t (i int)');
	foreach my $guard (qw(lease quorum))
	{
		on($machine, $guard)->query("SET zklock.commit_guard = $guard");
		in_transaction($machine, $guard, "/paused/$guard", "INSERT INTO t VALUES (1)");
	}
	my $token = $s{lease}->query("SELECT zk_fencing_token('/paused/lease')");
	queue($b, "after $_", "/paused/$_") foreach qw(lease quorum);
	my ($postmaster, $worker) = ($machine->postmaster_pid, $machine->worker_pid);
	my @others = grep { $_ != $worker } $postmaster, children_of($postmaster);
	freeze($worker, @others);
	my $since = clock_gettime(CLOCK_MONOTONIC);
	is($s{"after $_"}->finish, 't', "another server gets the lock: $_") foreach qw(lease quorum);
	append_to_file($ENV{PAUSED_CLOCK}, sprintf('%.0f', 1e9 * (clock_gettime(CLOCK_MONOTONIC) - $since)));

	# The worker hears of its session a moment later than sessions commit.
	thaw(@others);
	ok($s{lease}->try('COMMIT')->{ok}, 'by the clock of the machine the lease holds');
	$s{quorum}->query_start('COMMIT');
	$machine->wait_event($s{quorum}, 'guard');
	thaw($worker);
	fails($s{quorum}->result, '40001', 'with "quorum" ZooKeeper is asked');
	$s{'after lease'}->query(q{SELECT zk_fence('/paused/lease', zk_fencing_token('/paused/lease'))});
	fails($b->session->try("SELECT zk_fence('/paused/lease', $token)"), '40001', 'a fence refuses the late writer');
	$machine->wait_session;
	clean($zk, [ $b, $machine ]);
	$machine->stop;
};

done_clean($zk, $a, $b, $c);
