# Copyright (c) 2026, zklock contributors
#
# Every way in which a session releases a lock: by hand, at the end of a transaction or of a part
# of it, or of the session. Each time a session of the other server waits for it, gets it, and nothing
# stays behind. First the effect, then the lock: the next holder on the same server reads what the one before
# wrote.

use Zklock::Test;

# With WAL senders, COMMIT can be made to wait for a standby that does not exist.
my ($zk, $a, $b) = cast('a b', a => {
	allows_streaming => 1,
	conf => [ 'max_prepared_transactions = 5', "synchronous_standby_names = 'nobody'", 'synchronous_commit = local' ] });
my $path        = '/t/release';
my $waiter      = $b->session(name => 'waiter');
my @session     = ("SELECT zk_lock('/lock')");
my @transaction = ('BEGIN', "SELECT zk_xact_lock('/lock')");

$a->value('CREATE TABLE t (id int PRIMARY KEY, value int)');
$a->value('CREATE TABLE child (id int REFERENCES t DEFERRABLE INITIALLY DEFERRED)');
$a->value("CREATE PROCEDURE commit_inside() LANGUAGE plpgsql AS \$\$
BEGIN
	PERFORM zk_xact_lock('$path');
	COMMIT;
	PERFORM pg_advisory_lock(1);
	PERFORM pg_advisory_unlock(1);
END \$\$");

# The waiter's server knows of all that happened before: had the lock been released, it would have it.
sub still_waits($name)
{
	$b->settle;
	ok($waiter->busy, $name);
	return;
}

# Until the waiter stands behind the holder
sub wait_behind { $waiter->wait_row('blocked_by_node IS NOT NULL'); return; }

# A session takes the lock with some statements, the waiter waits for it, some more statements do not
# release it, one does, the waiter gets it, and nothing stays behind.
#
#   take     statements, '/lock' standing for $path
#   hold     statements that must not release it yet
#   release  one statement, or code, that does; the code gets the session
#   expect   SQLSTATE of the statement that releases, if it is an error
#   rows     how many rows of zk_locks show it held: one for each scope, default 1
#   open     a transaction is open afterwards
#   over     the session has ended afterwards
#   permit   /lock stands for a semaphore of one permit instead
sub release_by($name, %way)
{
	my $path = $way{permit} ? '/t/permits' : $path;
	my ($ask, $give, @folders) = $way{permit}
	  ? ("zk_semaphore_acquire('$path', 1, '30s')", "zk_semaphore_release('$path')", '/locks', '/leases')
	  : ("zk_lock('$path', '30s')", "zk_unlock('$path')", '');
	my $s = $a->session;
	foreach my $sql (@{ $way{take} })
	{
		my $r = $s->try($sql =~ s{/lock}{$path}gr);
		$r->{ok} or die "$name: $r->{error}";
	}
	is($a->lock_count("path = '$path' AND state = 'held'"), $way{rows} || 1, "$name: it is held");
	$waiter->query_start("SELECT $ask");
	wait_behind();
	foreach my $sql (@{ $way{hold} || [] })
	{
		$s->try($sql =~ s{/lock}{$path}gr);
		still_waits("$name: still held after $sql");
	}
	if (ref $way{release})
	{
		still_waits("$name: still held");
		$way{release}->($s);
	}
	else
	{
		my $r = $s->try($way{release} =~ s{/lock}{$path}gr);
		is($r->{sqlstate}, $way{expect} || '00000', "$name: $way{release}") or diag($r->{error});
	}
	my $r = $waiter->result;
	is($r->{text}, 't', "$name: the waiter gets it") or diag($r->{error});
	is($waiter->query("SELECT $give"), 't', "$name: and can release it");
	wait_until { $a->lock_count == 0 && $b->lock_count == 0 && !map { $zk->children("$path$_") } @folders }
	sub { "$name: nothing to be left\n" . $a->describe_locks . $b->describe_locks };
	$s->query('ROLLBACK') if $way{open};
	$s->disconnect unless $way{over};
	return;
}

subtest 'a session releases its lock by hand' => sub {
	release_by('unlock', take => \@session, release => "SELECT zk_unlock('/lock')");
	release_by('counted', take => ["SELECT zk_lock('/lock'), zk_try_lock('/lock'), zk_lock(ARRAY['/lock'])"],
		hold => [ "SELECT zk_unlock('/lock')", "SELECT zk_unlock(ARRAY['/lock'])" ],
		release => "SELECT zk_unlock('/lock')");
	release_by('array', take => ["SELECT zk_lock(ARRAY['/lock', '/t/other'])"],
		hold => ["SELECT zk_unlock('/t/other')"], release => "SELECT zk_unlock(ARRAY['/lock'])");
	release_by('unlock all', take => ["SELECT zk_lock('/lock'), zk_lock('/lock'), zk_lock('/t/other')"],
		release => 'SELECT zk_unlock_all()');
	release_by('discard all', take => ["SELECT zk_lock('/lock'), zk_lock('/lock')"],
		hold => [ 'DISCARD PLANS', 'DISCARD TEMP', 'RESET ALL' ], release => 'DISCARD ALL');
};

subtest 'a lock of the session level is released in a transaction that goes on' => sub {
	release_by('unlock in a transaction', take => [ 'BEGIN', @session ], release => "SELECT zk_unlock('/lock')",
		open => 1);
	release_by('unlock in an exception block',
		take    => \@session,
		release => "DO \$\$ BEGIN PERFORM zk_unlock('/lock'); RAISE 'no';"
		  . ' EXCEPTION WHEN raise_exception THEN NULL; END $$');
};

subtest 'a lock of the transaction level is released at the end of the transaction' => sub {
	release_by('commit', take => \@transaction,
		hold => [ "SELECT zk_unlock('/lock')", 'SELECT zk_unlock_all()', 'DISCARD PLANS' ], release => 'COMMIT');
	release_by('commit of a change', take => [ @transaction, 'INSERT INTO t VALUES (1, 1)' ], release => 'COMMIT');
	release_by('commit and chain', take => \@transaction, release => 'COMMIT AND CHAIN', open => 1);
	release_by('rollback',         take => \@transaction, release => 'ROLLBACK');
	release_by('rollback and chain', take => \@transaction, release => 'ROLLBACK AND CHAIN', open => 1);
	release_by('try-lock', take => [ 'BEGIN', "SELECT zk_try_xact_lock('/lock')" ], release => 'COMMIT');
	release_by('array for a transaction', take => [ 'BEGIN', "SELECT zk_xact_lock(ARRAY['/t/other', '/lock'])" ],
		release => 'COMMIT');
	release_by('error', take => \@transaction, release => 'SELECT 1/0', expect => '22012', open => 1);
	release_by('statement timeout', take => [ @transaction, "SET statement_timeout = '10ms'" ],
		release => 'DO $$ BEGIN LOOP END LOOP; END $$', expect => '57014', open => 1);
	release_by('commit that fails', take => [ @transaction, 'INSERT INTO child VALUES (17)' ], release => 'COMMIT',
		expect => '23503');
	release_by('two-phase commit', take => [ @transaction, 'INSERT INTO t VALUES (2, 2)' ],
		release => "PREPARE TRANSACTION 'x'", expect => '0A000');
	is($a->value('SELECT count(*) FROM pg_prepared_xacts'), 0, 'no transaction was prepared');
	is($a->value('SELECT count(*) FROM t WHERE id = 2'),    0, 'nor committed');
};

subtest 'a lock is released by the rollback to a savepoint before it' => sub {
	release_by('rollback to savepoint', take => [ 'BEGIN', 'SAVEPOINT s', "SELECT zk_xact_lock('/lock')" ],
		release => 'ROLLBACK TO s', open => 1);
	release_by('rollback to an outer savepoint',
		take => [ 'BEGIN', 'SAVEPOINT s', 'SAVEPOINT u', "SELECT zk_xact_lock('/lock')" ],
		hold => [ 'RELEASE u', 'SAVEPOINT v', 'ROLLBACK TO v' ], release => 'ROLLBACK TO s', open => 1);
	release_by('commit after savepoints', take => [ @transaction, 'SAVEPOINT s', "SELECT zk_xact_lock('/lock')" ],
		hold => [ 'ROLLBACK TO s', 'RELEASE s', 'SAVEPOINT u', 'SELECT 1/0', 'ROLLBACK TO u' ],
		release => 'COMMIT');
	release_by('error and rollback to savepoint',
		take => [ 'BEGIN', 'SAVEPOINT s', 'SAVEPOINT u', "SELECT zk_xact_lock('/lock')", 'SAVEPOINT v' ],
		hold => [ 'SELECT 1/0', 'ROLLBACK TO v' ], release => 'ROLLBACK TO s', open => 1);
	release_by('release of a savepoint', take => [ 'BEGIN', 'SAVEPOINT s', "SELECT zk_xact_lock('/lock')" ],
		hold => ['RELEASE s'], release => 'COMMIT');
};

subtest 'a shared lock is released in the same ways' => sub {
	release_by('shared, commit', take => [ 'BEGIN', "SELECT zk_xact_lock_shared('/lock')" ], release => 'COMMIT');
	release_by('shared, rollback to savepoint', take => [ 'BEGIN', 'SAVEPOINT s', "SELECT zk_xact_lock_shared('/lock')" ],
		release => 'ROLLBACK TO s', open => 1);
	release_by('shared, lost client', take => ["SELECT zk_lock_shared('/lock')"], over => 1, release => sub { $_[0]->vanish });
};

subtest 'a permit of the transaction level is released with the transaction, or its part' => sub {
	my @take  = ("SELECT zk_xact_semaphore_acquire('/lock', 1)");
	my @begun = (permit => 1, take => [ 'BEGIN', @take ]);
	release_by('permit, commit', @begun, hold => [ "SELECT zk_semaphore_release('/lock')", 'SELECT zk_unlock_all()' ],
		release => 'COMMIT');
	release_by('permit, rollback', @begun, release => 'ROLLBACK');
	release_by('permit, error', @begun, release => 'SELECT 1/0', expect => '22012', open => 1);
	release_by('permit, two-phase commit', @begun, release => "PREPARE TRANSACTION 'x'", expect => '0A000');
	release_by('permit, rollback to savepoint', permit => 1, take => [ 'BEGIN', 'SAVEPOINT s', @take, 'SAVEPOINT u', 'RELEASE u' ],
		release => 'ROLLBACK TO s', open => 1);
	release_by('permit, release of a savepoint', permit => 1, take => [ 'BEGIN', 'SAVEPOINT s', @take ], hold => ['RELEASE s'],
		release => 'COMMIT');
};

# A plpgsql block with EXCEPTION is a savepoint: the lock goes when the block is left by
# an error, while the statement goes on.
foreach my $error (1, 0)
{
	my $name = 'exception block ' . ($error ? 'left by an error' : 'left in order');
	subtest "the lock of an $name is released in time" => sub {
		my $gate = $a->session;
		my $s    = $a->session;
		$gate->query('SELECT pg_advisory_lock(3), pg_advisory_lock(4)');
		$s->query_start("DO \$\$ BEGIN
			BEGIN
				PERFORM zk_xact_lock('$path');
				PERFORM pg_advisory_xact_lock(3);
				IF $error = 1 THEN RAISE 'no'; END IF;
			EXCEPTION WHEN raise_exception THEN NULL;
			END;
			PERFORM pg_advisory_xact_lock(4);
		END \$\$");
		$a->wait_holder($s, $path);
		$waiter->start_waiting("SELECT zk_lock('$path', '30s')");
		still_waits("$name: held inside");
		$gate->query('SELECT pg_advisory_unlock(3)');
		if ($error)
		{
			is($waiter->finish, 't', "$name: the waiter gets it");
			ok($s->busy, "$name: while the statement goes on");
			$gate->query('SELECT pg_advisory_unlock(4)');
		}
		else
		{
			wait_until {
				$a->value('SELECT count(*) FROM pg_locks WHERE NOT granted AND objid = 4'
					  . ' AND pid = ' . $s->pid) } 'the block to be left';
			still_waits("$name: still held");
			$gate->query('SELECT pg_advisory_unlock(4)');
			is($waiter->finish, 't', "$name: the waiter gets it at the end");
		}
		$s->finish;
		$waiter->query("SELECT zk_unlock('$path')");
	};
}

subtest 'a procedure that commits releases the lock with the transaction, not with the CALL' => sub {
	my ($gate, $s) = map { $a->session } 1 .. 2;
	$gate->query('SELECT pg_advisory_lock(1)');
	$waiter->query("SELECT zk_lock('$path')");
	$s->start_waiting('CALL commit_inside()');
	$waiter->query("SELECT zk_unlock('$path')");
	is($waiter->query("SELECT zk_lock('$path', '30s')"), 't', 'commit in a procedure: the next gets it');
	ok($s->busy, 'while the procedure goes on');
	$waiter->query("SELECT zk_unlock('$path')");
	$gate->query('SELECT pg_advisory_unlock(1)');
	$s->finish;
};

subtest 'a lock held at both levels is released with the last of them' => sub {
	release_by('commit, then unlock', take => [ @session, @transaction ], rows => 2, hold => [ 'COMMIT' ],
		release => "SELECT zk_unlock('/lock')");
	release_by('unlock, then commit', take => [ @session, @transaction ], rows => 2,
		hold => [ "SELECT zk_unlock('/lock')" ], release => 'COMMIT');
	release_by('rollback and errors, then unlock', take => [ 'BEGIN', @session ],
		hold => [ 'SELECT 1/0', 'ROLLBACK', 'SELECT 1/0' ], release => "SELECT zk_unlock('/lock')");
	release_by('rollback to savepoint, then unlock',
		take => [ 'BEGIN', 'SAVEPOINT s', @session, "SELECT zk_xact_lock('/lock')" ], rows => 2,
		hold => [ 'ROLLBACK TO s', 'ROLLBACK' ], release => "SELECT zk_unlock('/lock')");
};

foreach my $level ([ 'session', \@session ], [ 'transaction', \@transaction ],
	[ 'both', [ @session, @transaction ] ])
{
	my ($name, $take) = @$level;
	subtest "the end of a session releases its locks: level $name" => sub {
		my @way = (take => $take, rows => $name eq 'both' ? 2 : 1, over => 1);
		release_by("disconnect, $name", @way, release => sub { $_[0]->disconnect });
		release_by("lost client, $name", @way, release => sub { $_[0]->vanish });
		release_by("terminate, $name", @way,
			release => sub ($s) {
				ok($s->terminate, "terminate, $name: the session ends");
				$s->disconnect;
			});
		release_by("terminate in a statement, $name", @way,
			release => sub ($s) {
				my $blocker = $a->session;
				$blocker->query('SELECT pg_advisory_lock(1)');
				$s->query_start('SELECT pg_advisory_lock(1)');
				$a->wait_value('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $s->pid, 'advisory');
				is($s->terminated, '57P01', "terminate in a statement, $name: the session ends");
				$s->disconnect;
			});
	};
}

subtest 'the end of a session in a transaction undoes its changes, and releases the lock' => sub {
	release_by('session closed after a change', take => [ @transaction, 'INSERT INTO t VALUES (3, 3)' ], over => 1,
		release => sub { $_[0]->vanish });
	is($a->value('SELECT count(*) FROM t WHERE id = 3'), 0, 'the change is undone');
	release_by('terminate after an error', take => [ @session, 'BEGIN' ], hold => ['SELECT 1/0'], over => 1,
		release => sub { $_[0]->terminate; $_[0]->disconnect });
};

subtest 'what an ended session had is not shown of the next' => sub {
	my ($first, $s, $next) = map { $a->session } 1 .. 3;
	$s->query("SELECT zk_lock('/t/other'), zk_lock_shared('/t/other')");
	$s->query("BEGIN; SELECT zk_xact_lock('/t/other'), zk_xact_lock_shared('/t/other')");
	is($a->lock_count("state = 'held'"), 4, 'both modes at both levels');
	$s->disconnect;
	wait_until { $a->lock_count == 0 } 'the end of the session';
	$first->query("SELECT zk_lock_shared('$path')");
	is_deeply([ map { "$_->{mode} $_->{scope} $_->{count}" } $a->locks ], ['shared session 1'],
		'the next holder has what it asked for');
	foreach my $function (qw(zk_lock zk_xact_lock))
	{
		$first->query('SELECT zk_unlock_all()');
		$first->query("SELECT $function('/t/other')");
		$first->query('SELECT zk_unlock_all()');
		$waiter->query("SELECT zk_lock('$path')");
		wait_until { $a->lock_count == 0 } 'the entry to be free';
		$next->start_waiting("SELECT zk_lock('$path')");
		is_deeply([ map { "$_->{state} $_->{count} " . ($_->{granted_at} // 'never') . ' ' . ($_->{fencing_token} // 'none') }
				$a->locks ],
			['waiting 0 never none'], "who waits after $function has nothing yet");
		$waiter->hands_over($path, $next, 'and is served');
		$next->query("SELECT zk_unlock('$path')");
	}
};

subtest 'timeouts end sessions that are idle, and release their locks' => sub {
	my $ended = sub ($s) {
		wait_until { !$a->value('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s->pid) } 'the session to be ended';
		$s->disconnect;
	};
	release_by('idle in transaction', take => [ "SET idle_in_transaction_session_timeout = '2s'", @transaction ],
		over => 1, release => $ended);
	release_by('idle session', take => [ "SET idle_session_timeout = '2s'", @session ], over => 1,
		release => $ended);
};

my ($writer, $reader) = map { $a->session } 1 .. 2;

subtest 'a lock is not released before the changes of its transaction are visible' => sub {
	# COMMIT is held up after its record is written, before it is visible, by a standby that does not exist.
	$writer->query('INSERT INTO t VALUES (10, 0)');
	$writer->query($_)
	  foreach 'SET synchronous_commit = on', 'BEGIN', "SELECT zk_xact_lock('$path')",
	  'UPDATE t SET value = value + 1 WHERE id = 10';
	$reader->start_waiting("SELECT zk_lock('$path')");
	$waiter->query_start("SELECT zk_lock('$path')");
	wait_behind();
	$writer->query_start('COMMIT');
	$a->wait_value('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $writer->pid, 'SyncRep');
	$a->settle;
	ok($reader->busy, 'while a commit waits for its standby, the next local session waits');
	still_waits('so does one elsewhere');
	is($a->value('SELECT value FROM t WHERE id = 10'), 0, 'the change is not visible yet');
	$a->set_conf(synchronous_standby_names => '');
	$writer->finish;
	is($reader->finish, 't', 'when it is committed the next gets the lock');
	is($reader->query('SELECT value FROM t WHERE id = 10'), 1, 'and sees the change');
	$reader->hands_over($path, $waiter, 'then the one elsewhere');
	$waiter->query("SELECT zk_unlock('$path')");
};

subtest 'a rollback is undone before the next session has the lock' => sub {
	$writer->query($_)
	  foreach 'BEGIN', "SELECT zk_xact_lock('$path')", 'DELETE FROM t WHERE id = 10';
	$reader->start_waiting("SELECT zk_lock('$path')");
	$writer->query('ROLLBACK');
	is($reader->finish, 't', 'after a rollback the next gets the lock');
	is($reader->query('SELECT value FROM t WHERE id = 10 FOR UPDATE NOWAIT'), 1,
		'and finds everything as it was');
	$reader->query("SELECT zk_unlock('$path')");
};

done_clean($zk, $a, $b);
