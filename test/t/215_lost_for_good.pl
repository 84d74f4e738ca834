# Copyright (c) 2026, zklock contributors
#
# ZooKeeper is away for longer than a session timeout, but the session lives: a server that
# starts gives the sessions that it finds a whole timeout again. Locks that were held count
# as lost by then, and must stay so.

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

	Zklock::Server->assert_clean($zk, [ $a, $b ], '/l/queue', '/l/alone');
};

my $proxy = Zklock::Proxy->start($zk);
my $c = Zklock::Server->new('c', zookeeper => $proxy, conf => ["zklock.session_timeout = '15s'"]);
$c->value('CREATE TABLE t (i int)');

subtest 'while a lock may be lost, a transaction that relied on it cannot commit' => sub {
	my %s = map { $_ => $c->session } qw(holder xact reader bystander);
	is($s{holder}->query("SELECT zk_lock('/l/session')"), 't', 'a session holds a lock');
	$s{holder}->query('BEGIN');
	$s{holder}->query('INSERT INTO t VALUES (1)');
	$s{xact}->query('BEGIN');
	is($s{xact}->query("SELECT zk_xact_lock('/l/xact')"), 't', 'a transaction holds another');
	is($s{reader}->query("SELECT zk_lock('/l/reader')"), 't', 'a session that only reads, a third');
	my $session = $c->session_id;
	$proxy->cut;
	$c->wait_lock($s{holder}, 'suspended', '/l/session');
	is($c->lock_count("state = 'suspended'"), 3, 'without a connection for a while all are suspended');
	ok($s{reader}->try('SELECT count(*) FROM t')->{ok}, 'who only reads is not kept');
	ok($s{bystander}->try('INSERT INTO t VALUES (2)')->{ok}, 'nor who holds no lock');
	$s{$_}->query_start('COMMIT') foreach qw(holder xact);
	$c->wait_value("SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT' AND wait_event_type = 'Extension'", 2);
	ok($s{$_}->busy, "the commit of $_ waits") foreach qw(holder xact);
	$proxy->heal;
	ok($s{$_}->result->{ok}, "the commit of $_ goes on when the connection is back") foreach qw(holder xact);
	is($c->session_id, $session, 'as the session lives');
	is($c->lock_count("state = 'held'"), 2, 'and what is held at session level is held again');

	$s{holder}->query('BEGIN');
	$s{holder}->query('INSERT INTO t VALUES (3)');
	$proxy->cut;
	$c->wait_lock($s{holder}, 'suspended', '/l/session');
	$s{holder}->query_start('COMMIT');
	$c->wait_value("SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT' AND wait_event_type = 'Extension'", 1);
	ok($s{holder}->cancel, 'such a commit can be cancelled');
	is($s{holder}->result->{sqlstate}, '57014', 'and is then rolled back');
	$c->reconnect($proxy);
	is($s{$_}->query('SELECT zk_unlock_all() IS NOT NULL'), 't', "$_ releases") foreach qw(holder reader);
	Zklock::Server->assert_clean($zk, [$c], '/l/session', '/l/xact', '/l/reader');
};

done_testing;
