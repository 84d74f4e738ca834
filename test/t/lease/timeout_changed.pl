# Copyright (c) 2026, zklock contributors
#
# A session whose timeout is changed. ZooKeeper's next leader, or a server that starts again,
# knows the timeout that the session was created with, whatever was negotiated since. A
# longer timeout therefore must not make the lease longer. And timeouts that are not what was asked for.

use Zklock::Test;
use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use Zklock::Cast qw(:DEFAULT clean);

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', a => { timeout => '4s' }, b => { timeout => '15s' });
$a->value('CREATE TABLE t (i int)');

subtest 'a session whose timeout is made longer may end after the one that it was created with' => sub {
	in_transaction($a, 'holder', '/t/longer', 'INSERT INTO t VALUES (1)');
	my $id = $a->session_id;
	$a->reconfigure('zklock.session_timeout' => scaled('40s'));
	$a->wait_value("SELECT negotiated_timeout = '@{[ scaled('40s') ]}' FROM zk_session", 't');
	my $since = $a->value('SELECT clock_timestamp()');
	$a->wait_value("SELECT clock_timestamp() + lease_remaining > '$since'::timestamptz + interval '@{[ scaled('4s') ]}' FROM zk_session", 't');
	is($a->session_id, $id, 'its session goes on with a longer timeout');
	queue($b, 'next', '/t/longer');

	$proxy->cut;
	$zk->restart;
	is($s{next}->finish, 't', 'after a restart ZooKeeper ends it after the timeout it was created with');
	is($s{holder}->try('COMMIT')->{sqlstate}, '40001', 'the transaction cannot commit');
	is($a->value('SELECT count(*) FROM t'), 0, 'nothing has been written');
	$proxy->heal;
	clean($zk, [ $a, $b ], '/t/longer');
};

subtest 'a timeout that is made shorter counts before ZooKeeper has granted it' => sub {
	hold($b, 'holder', '/t/sooner');
	$b->wait_renewed;
	$zk->pause;
	my $since = $b->value('SELECT clock_timestamp()');
	$b->set_conf('zklock.session_timeout' => scaled('5s'));
	$b->restart_worker;
	# One of 15 s would last longer, and one that is over would be over later.
	$b->wait_value("SELECT clock_timestamp() + lease_remaining < '$since'::timestamptz + '@{[ scaled('10s') ]}' FROM zk_session", 't');
	is($b->zk_session->{state}, 'connecting', 'the lease is as short as the timeout asked for, before that is granted');
	$zk->resume;
	$b->wait_session;
	clean($zk, [$b], '/t/sooner');
};

subtest 'a session that was once granted too short a timeout for any lock gives way to another' => sub {
	my $ensemble = Zklock::ZooKeeper->ensemble(3, start => 0);
	my ($generous, $mean) = map { $ensemble->server($_) } 1, 2;
	append_to_file($mean->dir . '/zoo.cfg', "maxSessionTimeout=7000\n");
	$ensemble->start;
	my $way = Zklock::Proxy->start($mean);
	my $e = Zklock::Server->new('e', zookeeper => $way, connect => 0,
		conf => [ "zklock.session_timeout = '20s'", "zklock.tick_time = '4s'" ]);
	$e->wait_log(qr/WARNING: .* too long for a session timeout of 7000 ms/, 0);
	my $id = $e->session_id;
	$way->target($generous);
	$way->drop;
	$e->wait_log(qr/ZooKeeper session ended: ZooKeeper grants a longer timeout than it once did/, 0);
	is($e->session->query("SELECT zk_lock('/t/again', '60s')"), 't', 'when ZooKeeper grants more, there are locks again');
	isnt($e->session_id, $id, 'in another session');
};

subtest 'a longer timeout counts as soon as nobody depends on the session, which gives way to another' => sub {
	my $g  = Zklock::Server->new('g', zookeeper => $zk, conf => ["zklock.session_timeout = '6s'"]);
	my $id = $g->session_id;
	hold($b, 'foreigner', '/t/foreign');
	queue($g, 'waiter', '/t/foreign');
	$g->set_conf('zklock.session_timeout' => scaled('40s'));
	$g->wait_value("SELECT last_error = 'the lease goes by a session timeout of @{[ 1000 * scaled(6) ]} ms, not @{[ 1000 * scaled(40) ]} ms, until another ZooKeeper session begins'
		FROM zk_session", 't');
	is($g->session_id, $id, 'who waits keeps the place, in the same session; zk_session says what counts');
	$s{foreigner}->hands_over('/t/foreign', $s{waiter}, 'it is served');
	is($g->session_id, $id, 'it holds the lock');
	is($s{waiter}->query("SELECT zk_unlock('/t/foreign')"), 't', 'and releases it');
	$g->wait_value("SELECT session_id <> '$id' AND lease_remaining > '20s' FROM zk_session", 't');
	pass('another session begins, with a lease of the longer timeout');
	$g->wait_value('SELECT obstacle IS NULL FROM zk_session', 't');
	clean($zk, [ $b, $g ], '/t/foreign');
	$g->stop;
};

my $slow = Zklock::ZooKeeper->standalone(tickTime => 2000, minSessionTimeout => 8000, maxSessionTimeout => 600_000);

subtest 'a timeout shorter than ZooKeeper allows serves with the least that it does' => sub {
	my $c = Zklock::Server->new('c', zookeeper => $slow, conf => ["zklock.session_timeout = '1s'"]);
	$c->wait_value("SELECT negotiated_timeout = '8s' AND lease_remaining > '4s' FROM zk_session", 't');
	hold($c, 'holder', '/t/shorter');
	$c->restart_worker;
	$c->wait_session;
	$c->wait_value("SELECT lease_remaining > '3s' FROM zk_session", 't');
	is(($c->locks)[0]{state}, 'held', 'and still does when the worker has been restarted');
	clean($slow, [$c], '/t/shorter');
};

subtest 'the first lease of a session runs from when the worker began to connect' => sub {
	my $way = Zklock::Proxy->start($slow);
	$way->cut;
	my $d = Zklock::Server->new('d', zookeeper => $way, connect => 0, conf => ["zklock.session_timeout = '3min'"]);
	$d->wait_session('connecting');
	my $begun = $d->value('SELECT clock_timestamp()');
	# No heartbeat renews it.
	$way->refuse(op => 'multi', code => -127, times => 0);
	$d->reconnect($way);
	# The clock is read before the lease is, however long that takes.
	my $now = $d->value('SELECT clock_timestamp()');
	is( $d->value(
			"SELECT '$now'::timestamptz + lease_remaining <= '$begun'::timestamptz + 0.99 * negotiated_timeout FROM zk_session"),
		't', 'a lease ends a hundredth of the session timeout early, counted from the attempt to connect');
	is($d->value("SELECT lease_remaining > '1min' FROM zk_session"), 't', 'there is one');
};

subtest 'a server that does not answer is given up, however long a session timeout ZooKeeper grants' => sub {
	my $hour = 3_600_000;
	my ($long, $way, $f) = cast('f', proxied => 'f', zk => { minSessionTimeout => $hour, maxSessionTimeout => $hour });
	is($f->value('SELECT negotiated_timeout FROM zk_session'), '01:00:00', 'the session lasts for an hour');
	is($f->value("SELECT zk_lock('/t/long')"), 't', 'a lock is held in it');
	# The connection that the client makes now is never answered.
	my $silent = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "listen: $!";
	$way->target($silent->sockport, raw => 1);
	$way->drop;
	my $connection = $silent->accept;
	$way->target($long);
	$f->wait_session;
	is($f->value("SELECT zk_unlock('/t/long')"), 't', 'the session goes on, and the lock with it');
};

done_testing;
