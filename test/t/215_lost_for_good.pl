# Copyright (c) 2026, zklock contributors
#
# ZooKeeper is away for longer than a session timeout, but the session lives: a server that
# starts gives the sessions that it finds a whole timeout again. Locks that were held count
# as lost by then, and must stay so. What becomes of a transaction while its lock may be lost is in 410_lease.pl.

use Zklock::Test;

my ($zk, $a, $b) = cast('a b', zk => { tickTime => 1000 }, timeout => '4s');
$a->value('CREATE TABLE t (i int)');
my ($holder, $next, $writer, $foreigner) = ($a->session, $a->session, $a->session, $b->session);

subtest 'a lock that was lost stays lost, although the session lives' => sub {
	is($holder->query("SELECT zk_lock('/l/queue')"), 't', 'a session holds a lock');
	$next->start_waiting("SELECT zk_lock('/l/queue')");
	$writer->query('BEGIN');
	$writer->query('INSERT INTO t VALUES (1)');
	is($writer->query("SELECT zk_xact_lock('/l/alone')"), 't', 'so does a transaction');

	my $session = $a->session_id;
	my $mark    = $a->log_mark;
	$zk->stop;
	ok($a->wait_lock($holder, 'lost', '/l/queue'), 'without ZooKeeper the lock is lost after a while');
	ok($a->wait_lock($writer, 'lost', '/l/alone'), "so is the transaction's");
	$a->assert_log($mark, qr/was not proved to be alive for a session timeout\n.*Locks lost: 2\./, 'the log tells of it');
	ok($next->busy, 'who waits goes on waiting');
	is($writer->try('COMMIT')->{sqlstate}, '40001', 'the transaction cannot commit');
	is($a->value('SELECT count(*) FROM t'), 0, 'and has done nothing');

	$zk->start;
	$zk->wait_ready;
	$a->wait_session;
	$b->wait_session;
	is($a->session_id, $session, 'the session lives');
	is($a->lock_count("state = 'lost'"), 1, 'but the lock that was lost stays lost');
	is($holder->try("SELECT zk_fencing_token('/l/queue')")->{sqlstate}, '40001', 'it has no token');
	is($next->finish, 't', 'the next session in the queue gets it');
	is($foreigner->query("SELECT zk_lock('/l/alone', '30s')"), 't', "the transaction's lock is free");
	is($holder->try("SELECT zk_unlock('/l/queue')")->{text}, 'f', 'the holder is told when it unlocks');
	is($holder->query("SELECT zk_try_lock('/l/queue')"), 'f', 'and sees that the lock is taken');
	is($next->query("SELECT zk_unlock('/l/queue')"), 't', 'which ends like any other');
	is($foreigner->query("SELECT zk_unlock('/l/alone')"), 't', 'as does the other');
};

done_clean($zk, $a, $b);
