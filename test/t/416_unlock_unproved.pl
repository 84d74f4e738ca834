# Copyright (c) 2026, zklock contributors
#
# A session-level lock may have been lost when it is released, before the commit of what was
# written under it.

use Zklock::Test;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '4s', conf => ['max_prepared_transactions = 1']);
$a->value('CREATE TABLE t (i int)');

subtest 'what was written under a lock that is not proved is not committed, though unlocked meanwhile' => sub {
	foreach my $unlock ("zk_unlock('/u/suspended')", 'zk_unlock_all()')
	{
		my ($writer, $reader, $next) = ($a->session, $a->session, $b->session);
		$_->query('BEGIN') foreach $writer, $reader;
		is($writer->query("SELECT zk_lock('/u/suspended')"), 't', "$unlock: a session holds a lock");
		is($reader->query("SELECT zk_lock('/u/read')"), 't', 'and another');
		$writer->query('INSERT INTO t VALUES (1)');
		$next->start_waiting("SELECT zk_lock('/u/suspended')");
		$proxy->cut;
		is($next->finish, 't', 'another server gets it');
		ok($_->try('SELECT zk_unlock_all()')->{ok}, 'it can be unlocked without ZooKeeper') foreach $reader;
		ok($writer->try("SELECT $unlock")->{ok}, 'or one of them');
		is($writer->try('COMMIT')->{sqlstate}, '40001', 'but what was written under it is not committed');
		ok($reader->try('COMMIT')->{ok}, 'who has only read may commit');
		ok($writer->try('INSERT INTO t VALUES (2)')->{ok}, 'and so may the next transaction');
		$proxy->heal;
		$a->wait_session;
		$_->disconnect foreach $writer, $reader, $next;
	}
	is($a->value('SELECT count(*) FROM t WHERE i = 1'), 0, 'nothing has been written');
};

subtest 'a lock that was lost and given up counts for the transaction that relied on it' => sub {
	my $session = $a->session;
	$session->query("SELECT zk_lock('/u/deleted')");
	$zk->shell->delete("/u/deleted/$_") foreach $zk->children('/u/deleted');
	$a->wait_lock($session, 'lost', '/u/deleted');
	$session->query('BEGIN');
	is($session->query("SELECT zk_unlock('/u/deleted')"), 'f', 'a lock is lost and unlocked');
	is($session->query("SELECT zk_lock('/u/deleted')"), 't', 'then taken again');
	$session->query('INSERT INTO t VALUES (3)');
	ok($session->try('COMMIT')->{ok}, 'what is written after that is committed');

	$session->query('BEGIN');
	$session->query('INSERT INTO t VALUES (4)');
	$zk->shell->delete("/u/deleted/$_") foreach $zk->children('/u/deleted');
	$a->wait_lock($session, 'lost', '/u/deleted');
	is($session->query("SELECT zk_unlock('/u/deleted')"), 'f', 'it is lost and unlocked again');
	is($session->try("PREPARE TRANSACTION 'p'")->{sqlstate}, '40001', 'what was written before that is not even prepared');
	ok($session->try('INSERT INTO t VALUES (5)')->{ok}, 'and work goes on');

	# A session that does not want to know is not told later either.
	$session->query("BEGIN; SET LOCAL zklock.commit_guard = off; INSERT INTO t VALUES (6); SELECT zk_lock('/u/deleted')");
	$zk->shell->delete("/u/deleted/$_") foreach $zk->children('/u/deleted');
	$a->wait_lock($session, 'lost', '/u/deleted');
	is($session->query("SELECT zk_unlock('/u/deleted')"), 'f', 'lost and unlocked once more');
	ok($session->try("PREPARE TRANSACTION 'p'")->{ok}, 'what was written is prepared without the guard');
	ok($session->try('INSERT INTO t VALUES (7)')->{ok}, 'the next transaction has nothing to do with it');
	$session->query("COMMIT PREPARED 'p'");
	$session->disconnect;
	is($a->value('SELECT string_agg(i::text, \' \' ORDER BY i) FROM t WHERE i > 2'), '3 5 6 7', 'as seen in the table');
};

subtest 'a permit that was lost and released counts for the transaction that relied on it' => sub {
	my $session = $a->session;
	$session->query('BEGIN');
	$session->query("SELECT zk_semaphore_acquire('/u/slots', 1)");
	$session->query('INSERT INTO t VALUES (8)');
	$zk->shell->delete("/u/slots/leases/$_") foreach $zk->children('/u/slots/leases');
	$a->wait_lock($session, 'lost', '/u/slots');
	is($session->query("SELECT zk_semaphore_release('/u/slots')"), 'f', 'a permit is lost and released');
	is($session->try('COMMIT')->{sqlstate}, '40001', 'what was written under it is not committed');
	$session->disconnect;
};

Zklock::Server->assert_clean($zk, [ $a, $b ], '/u/slots/locks', '/u/slots/leases', '/u/suspended', '/u/read', '/u/deleted');
done_testing;
