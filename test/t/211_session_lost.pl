# Copyright (c) 2026, zklock contributors
#
# ZooKeeper is away for longer than the session lives. Holders are told that they have lost
# their locks, sessions that wait queue again, and nothing is written under a lost lock.
#
# Only c is cut off, so that others see its locks become free.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT clean);

my ($zk, $proxy, $b, $c) = cast('b c', proxied => 'c', b => { timeout => '12s' }, c => { timeout => '2s' });
$c->value('CREATE TABLE t (i int)');

subtest 'a session that ends takes the locks of its holders, and lets waiters queue again' => sub {
	hold($c, 'holder', '/u/lost');
	queue($c, 'next', '/u/lost');
	queue($b, 'heir', '/u/lost');
	hold($b, 'foreigner', '/u/foreign');
	queue($c, 'waiter', '/u/foreign');
	hold($c, $_, "/u/$_") foreach qw(writer reader discarder loser aborter);
	on($c, 'savepoint')->query('BEGIN; SAVEPOINT s');
	is($s{savepoint}->query("SELECT zk_xact_lock('/u/savepoint')"), 't', 'savepoint holds /u/savepoint');
	in_transaction($c, 'xact_reader', '/u/xact_reader');
	$s{$_}->query('BEGIN; INSERT INTO t VALUES (1)') foreach qw(writer aborter);
	$s{reader}->query('BEGIN; SELECT count(*) FROM t');
	my $old = $c->session_id;
	my %token = map { $_ => $s{$_}->query("SELECT zk_fencing_token('/u/lost')") } 'holder';
	my $mark = $c->log_mark;
	$proxy->cut;
	is($s{heir}->finish, 't', 'when the session has timed out another server gets the lock');
	cmp_ok($s{heir}->query("SELECT zk_fencing_token('/u/lost')"), '>', $token{holder}, 'with a higher token');
	is(scalar(grep { /$old/ } @{ $zk->places('/u/foreign') }), 0, 'and the places of its waiters are gone');
	ok($c->wait_lock($s{holder}, 'lost', '/u/lost'), 'who cannot ask knows that it may be so');
	$c->assert_log($mark, qr/was not proved to be alive for a session timeout\n.*Locks lost: 8\./, 'as the log tells');
	$proxy->heal;
	wait_until { ($c->session_id || $old) ne $old } 'a new session';
	$c->wait_session;
	is($c->zk_session->{expirations}, 1, 'zk_session counts the expiration');
	$c->assert_log($mark, qr/ZooKeeper session ended: session expired/, 'the log tells of it');
	$c->assert_log($mark, qr/Locks lost: 0\. Waiting requests that queue again: 2\./,
		'and what it meant');

	is($c->wait_lock($s{holder}, 'lost', '/u/lost')->{granted}, 'f', 'the lock is lost in zk_locks');
	is($c->lock_count("state = 'lost'"), 8, 'as are all that were held');
	is($s{holder}->try("SELECT zk_fencing_token('/u/lost')")->{sqlstate}, '40001', 'its token is an error');
	is($s{holder}->try("SELECT zk_lock('/u/lost')")->{sqlstate},
		'40001', 'it is not acquired again behind the back of who believes to hold it');
	is($s{holder}->try("SELECT zk_try_lock('/u/lost')")->{sqlstate}, '40001', 'not even tried');
	my $result = $s{holder}->try("SELECT zk_unlock('/u/lost')");
	is($result->{text}, 'f', 'zk_unlock returns false');
	like("@{ $result->{notices} }", qr/WARNING:.*lost/, 'with a warning');
	is($s{holder}->query("SELECT zk_try_lock('/u/lost')"), 'f', 'then one can ask again');

	is($s{writer}->try('COMMIT')->{sqlstate}, '40001', 'the commit of a session that wrote fails');
	is($s{xact_reader}->try('COMMIT')->{sqlstate}, '40001', 'so does that of a transaction that holds a lock');
	ok($s{reader}->try('COMMIT')->{ok}, 'one that only read commits');
	ok($s{aborter}->try('ROLLBACK')->{ok}, 'one that wrote rolls back');
	is($c->value('SELECT count(*) FROM t'), 0, 'nothing was written');
	is($s{writer}->try('INSERT INTO t VALUES (2)')->{sqlstate},
		'40001', 'a session cannot write as long as it has not given the lost lock back');
	is($s{writer}->try("SELECT zk_unlock('/u/writer')")->{text}, 'f', 'it gives it back');
	ok($s{writer}->try('INSERT INTO t VALUES (2)')->{ok}, 'then it can');
	ok($s{savepoint}->try('ROLLBACK TO s')->{ok}, 'the loss goes with the savepoint it was acquired after');
	ok($s{savepoint}->try('INSERT INTO t VALUES (3); COMMIT')->{ok}, 'and the rest commits');
	$result = $s{discarder}->try('DISCARD ALL');
	ok($result->{ok}, 'DISCARD ALL gives lost locks back');
	like("@{ $result->{notices} }", qr/WARNING:.*lost/, 'with a warning');
	ok($s{loser}->try('SELECT zk_unlock_all()')->{ok}, 'so does zk_unlock_all');
	$s{aborter}->disconnect;
	$s{reader}->disconnect;
	wait_until { $c->lock_count("state = 'lost'") == 0 } 'no lost lock to be left';

	ok($s{waiter}->busy && $s{next}->busy, 'who waited still waits');
	$c->wait_waiting($s{waiter}, '/u/foreign');
	wait_until { @{ $zk->places('/u/foreign') } == 2 } 'the waiter to have a new node';
	$s{foreigner}->hands_over('/u/foreign', $s{waiter}, 'and gets the lock in its turn, having queued again by itself');
	ok($s{next}->busy, 'also who waited in the queue of the lost lock');
	$s{heir}->hands_over('/u/lost', $s{next}, 'is served after those who hold it now');
	clean($zk, [ $b, $c ], map { "/u/$_" } qw(lost foreign writer reader discarder loser aborter xact_reader savepoint));
};

subtest 'what is asked for and given up while the session ends leaves nothing behind' => sub {
	hold($c, 'holder', '/u/dying');
	hold($b, 'foreigner', '/u/dying2');
	queue($c, 'canceller', '/u/dying2');
	my $old = $c->session_id;
	$c->cut_off($proxy);
	is($s{holder}->query("SELECT zk_unlock('/u/dying')"), 't', 'a lock is given back in an outage');
	queue($c, 'newcomer', '/u/dying');
	is($s{canceller}->cancelled, '57014', 'and a wait cancelled');
	wait_until { !$zk->children('/u/dying') } 'the session to expire';
	$proxy->heal;
	is($s{newcomer}->finish, 't', 'who came meanwhile is served by the next session');
	isnt($c->session_id, $old, 'which is another one');
	is(scalar($zk->children('/u/dying2')), 1, 'who gave up has no node in it');
	clean($zk, [ $b, $c ], '/u/dying', '/u/dying2');
};

done_testing;
