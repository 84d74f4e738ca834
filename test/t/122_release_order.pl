# Copyright (c) 2026, zklock contributors
#
# First the effect, then the lock: the next holder on the same server reads what the one before
# wrote.

use Zklock::Test;
use Zklock::Release;

# With WAL senders, COMMIT can be made to wait for a standby that does not exist.
my ($zk, $a, $b) = cast('a b', a => {
	allows_streaming => 1,
	conf => [ 'max_prepared_transactions = 5', "synchronous_standby_names = 'nobody'", 'synchronous_commit = local' ] });
Zklock::Release::cast($zk, $a, $b);
$a->value('CREATE TABLE t (id int PRIMARY KEY, value int)');
my ($writer, $reader) = map { $a->session } 1 .. 2;

subtest 'a lock is not released before the changes of its transaction are visible' => sub {
	# The next holder on the same server reads what the one before wrote. COMMIT is held up
	# after its record is written, before it is visible, by a synchronous standby that does
	# not exist: nobody may get the lock meanwhile.
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

subtest 'each of 100 transactions sees what the one before wrote' => sub {
	my @adders = map { $a->session } 1 .. 4;
	foreach my $s (@adders)
	{
		$s->query("CREATE OR REPLACE PROCEDURE add_one() LANGUAGE plpgsql AS \$\$
		DECLARE
			seen int;
		BEGIN
			FOR i IN 1 .. 25 LOOP
				PERFORM zk_xact_lock('$path');
				SELECT value INTO seen FROM t WHERE id = 10;
				PERFORM count(*) FROM generate_series(1, 5000);
				UPDATE t SET value = seen + 1 WHERE id = 10;
				COMMIT;
			END LOOP;
		END \$\$")
		  if $s == $adders[0];
		$s->query_start('CALL add_one()');
	}
	$_->finish foreach @adders;
	is($a->value('SELECT value FROM t WHERE id = 10'), 101, 'each of 100 transactions saw the one before');
	$_->disconnect foreach @adders;
};

subtest 'a rollback is undone before the next session has the lock' => sub {
	$writer->query($_)
	  foreach 'BEGIN', "SELECT zk_xact_lock('$path')", 'DELETE FROM t WHERE id = 10';
	$reader->start_waiting("SELECT zk_lock('$path')");
	$writer->query('ROLLBACK');
	is($reader->finish, 't', 'after a rollback the next gets the lock');
	is($reader->query('SELECT value FROM t WHERE id = 10 FOR UPDATE NOWAIT'), 101,
		'and finds everything as it was');
	$reader->query("SELECT zk_unlock('$path')");
};

done_clean($zk, $a, $b);
