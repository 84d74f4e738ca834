# Copyright (c) 2026, zklock contributors
#
# Every way in which a session releases a lock: by hand, at the end of a transaction or of a part
# of it, or of the session. Each time a session of the other server waits for it, gets it, and nothing
# stays behind. First the effect, then the lock: the next holder on the same server reads what the one before
# wrote.
#
# Which statements release what is in the SQL contract: sql/lock.sql, sql/xact.sql, and sql/semaphore.sql for permits.

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
# The waiter's server knows of all that happened before: had the lock been released, it would have it.
sub still_waits($name)
{
	$b->settle;
	ok($waiter->busy, $name);
	return;
}

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
sub release_by($name, %way)
{
	my $s = $a->session;
	foreach my $sql (@{ $way{take} })
	{
		my $r = $s->try($sql =~ s{/lock}{$path}gr);
		$r->{ok} or die "$name: $r->{error}";
	}
	is($a->lock_count("path = '$path' AND state = 'held'"), $way{rows} || 1, "$name: it is held");
	$waiter->query_start("SELECT zk_lock('$path', '30s')");
	$waiter->wait_row('blocked_by_node IS NOT NULL');
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
	is($waiter->query("SELECT zk_unlock('$path')"), 't', "$name: and can release it");
	wait_until { $a->lock_count == 0 && $b->lock_count == 0 && !$zk->children($path) }
	sub { "$name: nothing to be left\n" . $a->describe_locks . $b->describe_locks };
	$s->query('ROLLBACK') if $way{open};
	$s->disconnect unless $way{over};
	return;
}

subtest 'a session releases its lock by hand' => sub {
	release_by('unlock', take => ["SELECT zk_lock('/lock'), zk_try_lock('/lock'), zk_lock(ARRAY['/lock', '/t/other'])"],
		hold => [ "SELECT zk_unlock('/lock')", "SELECT zk_unlock(ARRAY['/lock', '/t/other'])" ],
		release => "SELECT zk_unlock('/lock')");
	release_by('unlock all', take => ["SELECT zk_lock('/lock'), zk_lock('/lock'), zk_lock('/t/other')"],
		release => 'SELECT zk_unlock_all()');
	release_by('discard all', take => ["SELECT zk_lock('/lock'), zk_lock('/lock')"],
		hold => [ 'DISCARD PLANS', 'DISCARD TEMP', 'RESET ALL' ], release => 'DISCARD ALL');
	release_by('unlock in a transaction', take => [ 'BEGIN', @session ], release => "SELECT zk_unlock('/lock')",
		open => 1);
};

subtest 'a lock is released at the end of the transaction, or of the session when that has failed' => sub {
	release_by('commit', take => [ @transaction, 'INSERT INTO t VALUES (1, 1)' ],
		hold => [ "SELECT zk_unlock('/lock')", 'SELECT zk_unlock_all()', 'DISCARD PLANS' ], release => 'COMMIT');
	release_by('rollback', take => \@transaction, release => 'ROLLBACK');
	release_by('error', take => \@transaction, release => 'SELECT 1/0', expect => '22012', open => 1);
	release_by('terminate after an error', take => [ @session, 'BEGIN' ], hold => ['SELECT 1/0'], over => 1,
		release => sub { $_[0]->terminate; $_[0]->disconnect });
	release_by('commit that fails', take => [ @transaction, 'INSERT INTO child VALUES (17)' ], release => 'COMMIT',
		expect => '23503');
};

subtest 'a lock is released by the rollback to a savepoint before it' => sub {
	release_by('rollback to an outer savepoint',
		take => [ 'BEGIN', 'SAVEPOINT s', 'SAVEPOINT u', "SELECT zk_xact_lock('/lock')" ],
		hold => [ 'RELEASE u', 'SAVEPOINT v', 'ROLLBACK TO v' ], release => 'ROLLBACK TO s', open => 1);
	release_by('error and rollback to savepoint',
		take => [ 'BEGIN', 'SAVEPOINT s', 'SAVEPOINT u', "SELECT zk_xact_lock('/lock')", 'SAVEPOINT v' ],
		hold => [ 'SELECT 1/0', 'ROLLBACK TO v' ], release => 'ROLLBACK TO s', open => 1);
};

subtest 'a lock held at both levels is released with the last of them' => sub {
	release_by('commit, then unlock', take => [ @session, @transaction ], rows => 2, hold => [ 'COMMIT' ],
		release => "SELECT zk_unlock('/lock')");
	release_by('unlock, then commit', take => [ @session, @transaction ], rows => 2,
		hold => [ "SELECT zk_unlock('/lock')" ], release => 'COMMIT');
};

subtest 'a cancellation finds all released, whatever there is to be warned of' => sub {
	my $s     = $a->session;
	my @paths = map { "/t/several/$_" } 1 .. 3;
	foreach my $release ('zk_unlock_all()', map { "zk_unlock(ARRAY['$paths[0]', '$_', '$paths[2]'])" } $paths[1], '/t/several/none')
	{
		$s->query("SELECT zk_lock('$_')") foreach @paths;
		$a->lose($zk, $s, $paths[1]);
		my $result = $s->try("SELECT pg_cancel_backend(pg_backend_pid()), $release");
		is($result->{sqlstate}, '57014', "$release is cancelled");
		like("@{ $result->{notices} }", qr/^WARNING:  01000: (?:lock on|you don't own)/, 'and has warned');
		is($a->lock_count("state = 'held'"), 0, 'nothing is held any more');
		$s->query('SELECT zk_unlock_all()');
		wait_until { $a->lock_count == 0 } 'the end of all';
	}
	# Of a tree it is all or nothing.
	$s->query("SELECT zk_lock_tree('/t/several/x', '/t')");
	foreach my $case ([ '/t/several/y', 2, 'a tree of which one is not held is left as it was' ], [ '/t/several/x', 0, 'else all are released' ])
	{
		my ($path, $held, $name) = @$case;
		is($s->try("SELECT pg_cancel_backend(pg_backend_pid()), zk_unlock_tree('$path', '/t')")->{sqlstate}, '57014', "$path is cancelled");
		is($a->lock_count("state = 'held'"), $held, $name);
	}
	wait_until { $a->lock_count == 0 } 'the end of all';
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
	$waiter->wait_row('blocked_by_node IS NOT NULL');
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
