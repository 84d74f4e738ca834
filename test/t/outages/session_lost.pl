# Copyright (c) 2026, zklock contributors
#
# ZooKeeper is away for longer than the session lives. Holders are told that they have lost
# their locks, sessions that wait queue again, and nothing is written under a lost lock.
#
# Only c is cut off, so that others see its locks become free. Then ZooKeeper is away for longer than the session
# timeout of a, but the session lives: locks that were held count as lost by then, and must stay so. What becomes of a
# transaction while its lock may be lost is in lease/lease.pl; what else a session can do that has lost one, in the SQL
# contract.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT token lost clean);

my ($zk, $proxy, $a, $b, $c) = cast('a b c', zk => { tickTime => 1000 },
	proxied => 'c', a => { timeout => '8s' }, b => { timeout => '12s' }, c => { timeout => '4s' });
$c->value('CREATE TABLE t (i int)');

subtest 'a session that ends takes the locks of its holders, and lets waiters queue again' => sub {
	hold($c, 'holder', '/u/lost');
	queue($c, 'next', '/u/lost');
	queue($b, 'heir', '/u/lost');
	hold($b, 'foreigner', '/u/foreign');
	queue($c, 'waiter', '/u/foreign');
	hold($c, 'giver', '/u/dying');
	hold($b, 'obstacle', '/u/dying2');
	queue($c, 'canceller', '/u/dying2');
	on($c, 'newcomer');
	hold($c, 'writer', '/u/writer');
	$s{writer}->query('BEGIN; INSERT INTO t VALUES (1)');
	in_transaction($c, 'reader', '/u/reader');
	my $watches = $zk->watch_count;
	on($c, 'seeker')->query_start("SELECT zk_queue_take('/u/queue')");
	wait_until { $zk->watch_count > $watches } 'the watch of a queue';
	my $old = $c->session_id;
	my ($token, $mark) = (token('holder', '/u/lost'), $c->log_mark);
	$c->cut_off($proxy);
	is($s{giver}->query("SELECT zk_unlock('/u/dying')"), 't', 'a lock is given back in an outage');
	queue($c, 'newcomer', '/u/dying');
	is($s{$_}->cancelled, '57014', 'and a wait cancelled') foreach qw(canceller seeker);
	is($s{heir}->finish, 't', 'when the session has timed out another server gets the lock');
	cmp_ok(token('heir', '/u/lost'), '>', $token, 'with a higher token');
	is(scalar(grep { /$old/ } @{ $zk->places('/u/foreign') }), 0, 'and the places of its waiters are gone');
	ok($c->wait_lock($s{holder}, 'lost', '/u/lost'), 'who cannot ask knows that it may be so');
	$c->assert_log($mark, qr/was not proved to be alive for a session timeout\n.*Locks lost: 3\./, 'as the log tells');
	$proxy->heal;
	wait_until { ($c->session_id || $old) ne $old } 'a new session';
	$c->wait_session;
	is($c->zk_session->{expirations}, 1, 'zk_session counts the expiration');
	$c->assert_log($mark, qr/ZooKeeper session ended: session expired/, 'the log tells of it');
	$c->assert_log($mark, qr/Locks lost: 0\. Waiting requests that queue again: 3\./,
		'and what it meant');

	is($c->lock_count("state = 'lost'"), 3, 'all locks that were held are lost in zk_locks');
	is($s{holder}->try("SELECT $_('/u/lost')")->{sqlstate}, '40001',
		"$_: it is not acquired again behind the back of who believes to hold it") foreach qw(zk_lock zk_try_lock);
	lost($c, 'holder', '/u/lost');
	is($s{holder}->query("SELECT zk_try_lock('/u/lost')"), 'f', 'then one can ask again');

	is($s{writer}->try('COMMIT')->{sqlstate}, '40001', 'the commit of a session that wrote fails');
	is($s{reader}->try('COMMIT')->{sqlstate}, '40001', 'so does that of a transaction that holds a lock');
	is($c->value('SELECT count(*) FROM t'), 0, 'nothing was written');
	is($s{writer}->query("SELECT zk_unlock('/u/writer')"), 'f', 'the lock is given back');
	wait_until { $c->lock_count("state = 'lost'") == 0 } 'no lost lock to be left';

	is($s{newcomer}->finish, 't', 'who came meanwhile is served by the next session');
	is(scalar($zk->children('/u/dying2')), 1, 'who gave up has no node in it');
	ok($s{waiter}->busy && $s{next}->busy, 'who waited still waits');
	$c->wait_waiting($s{waiter}, '/u/foreign');
	wait_until { @{ $zk->places('/u/foreign') } == 2 } 'the waiter to have a new node';
	$s{foreigner}->hands_over('/u/foreign', $s{waiter}, 'and gets the lock in its turn, having queued again by itself');
	ok($s{next}->busy, 'also who waited in the queue of the lost lock');
	$s{heir}->hands_over('/u/lost', $s{next}, 'is served after those who hold it now');
	clean($zk, [ $b, $c ]);
};

subtest 'a lock that was lost stays lost, although the session lives' => sub {
	# A server that starts gives the sessions that it finds a whole timeout again.
	hold($a, 'holder', '/l/queue');
	queue($a, 'next', '/l/queue');
	$a->value('CREATE TABLE t (i int)');
	in_transaction($a, 'writer', '/l/alone', 'INSERT INTO t VALUES (1)');

	my ($session, $mark) = ($a->session_id, $a->log_mark);
	$zk->stop;
	ok($a->wait_lock($s{holder}, 'lost', '/l/queue'), 'without ZooKeeper the lock is lost after a while');
	ok($a->wait_lock($s{writer}, 'lost', '/l/alone'), "so is the transaction's");
	$a->assert_log($mark, qr/was not proved to be alive for a session timeout\n.*Locks lost: 2\./, 'the log tells of it');
	ok($s{next}->busy, 'who waits goes on waiting');
	is($s{writer}->try('COMMIT')->{sqlstate}, '40001', 'the transaction cannot commit');
	is($a->value('SELECT count(*) FROM t'), 0, 'and has done nothing');

	$zk->start;
	$_->wait_session foreach $a, $b;
	is($a->session_id, $session, 'the session lives');
	is($a->lock_count("state = 'lost'"), 1, 'but the lock that was lost stays lost');
	is($s{next}->finish, 't', 'the next session in the queue gets it');
	is(on($b, 'foreigner')->query("SELECT zk_lock('/l/alone', '30s')"), 't', "the transaction's lock is free");
	lost($a, 'holder', '/l/queue');
	is($s{holder}->query("SELECT zk_try_lock('/l/queue')"), 'f', 'and sees that the lock is taken');
};

done_clean($zk, $a, $b, $c);
