# Copyright (c) 2026, zklock contributors
#
# The next holder of a lock, on whatever server, must not run before the work of the last
# one is durable. Therefore a transaction with a transaction-level lock is flushed at commit, even
# with synchronous_commit = off.

use Zklock::Test;

# Nobody but a commit is to flush: no background process that would have a reason to, and
# the WAL writer, whose work it is to flush what commits leave, is stopped below.
my ($zk, $server) = cast('main',
	conf => [
		'synchronous_commit = off',   'wal_writer_delay = 10s',
		'wal_writer_flush_after = 1GB', 'autovacuum = off',
		'bgwriter_lru_maxpages = 0',  'checkpoint_timeout = 1h',
		'wal_level = minimal',        'max_wal_senders = 0' ]);
my $s = $server->session;
$s->query('CREATE TABLE t (what text)');

my $walwriter = $server->value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});
freeze($walwriter);

# Bytes of WAL that are not flushed. The insert position can be behind a page header, of 40
# bytes at most, that is not there to be flushed yet; a transaction that writes has more.
sub unflushed
{
	return $s->query('SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn())');
}

sub flushed($expected, $name, @statements)
{
	my ($before, $bytes);
	# Now and then reading prunes a page, which is not flushed either: then try again.
	for (my $try = 0; $try < 5; $try++)
	{
		# Everything before is flushed, so that what is left is the transaction's.
		$s->query(q{BEGIN; SET LOCAL synchronous_commit = on; INSERT INTO t VALUES ('before'); COMMIT});
		$before = unflushed();
		$s->query($_) foreach @statements;
		$bytes = unflushed();
		last if $before <= 40 && (!$expected || $bytes <= 40);
	}
	cmp_ok($before, '<=', 40, "$name: nothing is left of earlier transactions");
	return $expected
	  ? cmp_ok($bytes, '<=', 40, "$name: flushed at commit")
	  : cmp_ok($bytes, '>', 40, "$name: not flushed at commit");
}

my $insert = q{INSERT INTO t VALUES ('x')};
my $lock   = q{SELECT zk_xact_lock('/t/lock')};

subtest 'without a lock nothing is flushed' => sub {
	# Without a lock nothing flushes: else the rest would prove nothing.
	flushed(0, 'no lock', 'BEGIN', $insert, 'COMMIT');
	flushed(0, 'no lock, one statement', $insert);
};

subtest 'a transaction that holds a lock is flushed at its commit' => sub {
	flushed(1, 'lock first', 'BEGIN', $lock, $insert, 'COMMIT');
	flushed(1, 'lock last', 'BEGIN', $insert, $lock, 'COMMIT');
	flushed(1, 'one statement', q{INSERT INTO t SELECT zk_xact_lock('/t/lock')});
	flushed(1, 'zk_try_xact_lock', 'BEGIN', q{SELECT zk_try_xact_lock('/t/lock')}, $insert, 'COMMIT');
	flushed(1, 'several locks', 'BEGIN', q{SELECT zk_xact_lock(ARRAY['/t/lock', '/t/lock2'])}, $insert, 'COMMIT');
	flushed(1, 'lock of a released savepoint',
		'BEGIN', 'SAVEPOINT s', $lock, 'RELEASE s', $insert, 'COMMIT');
	flushed(1, 'lock held at session level as well',
		'BEGIN', q{SELECT zk_lock('/t/lock')}, $lock, $insert, 'COMMIT', q{SELECT zk_unlock('/t/lock')});
	flushed(1, 'COMMIT AND CHAIN', 'BEGIN', $lock, $insert, 'COMMIT AND CHAIN');
	flushed(0, 'the chained transaction, without a lock', $insert, 'COMMIT');
	flushed(1, 'commit in a procedure',
		q{DO $$ BEGIN PERFORM zk_xact_lock('/t/lock'); INSERT INTO t VALUES ('x'); COMMIT; END $$});
};

subtest 'only such a transaction is flushed, and only while it holds the lock' => sub {
	flushed(0, 'the next transaction', 'BEGIN', $insert, 'COMMIT');
	flushed(0, 'lock rolled back to a savepoint',
		'BEGIN', 'SAVEPOINT s', $lock, 'ROLLBACK TO s', $insert, 'COMMIT');
	flushed(0, 'lock at session level',
		q{SELECT zk_lock('/t/lock')}, 'BEGIN', $insert, 'COMMIT', q{SELECT zk_unlock('/t/lock')});
};

thaw($walwriter);
done_clean($zk, $server);
