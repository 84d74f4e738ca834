# Copyright (c) 2026, zklock contributors
#
# Connections that come to nothing: a server that hangs up right after the handshake, or
# before it; something at the port that is no ZooKeeper. ZooKeeper is not stormed, the log says
# what is wrong, and what is taken for the end of the session is a loss like any other.
#
# And connections in which no lock is granted: ZooKeeper caps the session timeout, the chroot is missing. The log,
# zk_session and errors say so before anybody has to guess; so they do of credentials that are missing, settings/auth.pl.

use Zklock::Test;
use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use Zklock::Cast;
use Zklock::Shell;

my ($zk, $proxy, $a) = cast('a',
	proxied => 'a', timeout => '12s', zk => { conf => { maxClientCnxns => 8 } }, conf => ['log_min_messages = debug1']);

subtest 'a server that hangs up right after the handshake' => sub {
	hold($a, 'holder', '/b/held');
	my ($id, $worker, $mark) = ($a->session_id, $a->worker_pid, $a->log_mark);
	$proxy->reset_counts;
	$proxy->hang_up(1);
	$a->wait_log(qr/LOG:  zklock worker restarts because of a connection that does not serve: .*jute\.maxbuffer/, $mark);
	my ($until) = $a->log_since($mark) =~ /^(.*?)zklock worker restarts/s;
	cmp_ok(scalar(() = $until =~ /LOG:  connected to ZooKeeper server/g), '<=', 6, 'after three connections without an answer the worker ends');
	like($a->zk_session->{last_error}, qr/accepts each connection and closes it.*jute\.maxbuffer/, 'zk_session says what happens');
	# The session lives on by the attempts alone, for longer than its timeout.
	my $since = $a->value('SELECT clock_timestamp()');
	$a->wait_value("SELECT clock_timestamp() > '$since'::timestamptz + interval '@{[ scaled('24s') ]}'", 't');
	cmp_ok($proxy->accepted, '<', 40, 'new workers connect later and later, but not so late that the session ends');
	$proxy->hang_up(0);
	$a->wait_value("SELECT lease_remaining > '1s' FROM zk_session", 't');
	is($a->session_id, $id, 'when that has passed the session goes on');
	is($a->zk_session->{expirations}, 0, 'it has not ended in between');
	# The lock has counted as lost for a while.
	$s{holder}->query('SELECT zk_unlock_all()');
	is($s{holder}->query("SELECT zk_lock('/b/held') AND zk_unlock('/b/held')"), 't', 'and locks are granted in it');
};

subtest 'a server that accepts the connection and answers nothing' => sub {
	my ($id, $mark) = ($a->session_id, $a->log_mark);
	my ($hex) = slurp_file($a->session_file) =~ /^password (\w+)$/m;
	# It grants the session an hour, for which the library would wait.
	my $handshake = pack('N/a*', pack('l>2 q> l>/a* c', 0, 3_600_000, hex($id =~ s/^0x//r), pack('H*', $hex), 0));
	my $silent = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "listen: $!";
	$proxy->target($silent->sockport, raw => 1);
	$proxy->drop;
	my $connection = $silent->accept;
	syswrite $connection, $handshake;
	wait_until { ($a->zk_session->{last_error} // '') =~ /^ZooKeeper server 127\.0\.0\.1:\d+ does not answer$/ } 'the worker to leave it';
	$proxy->target($zk);
	$proxy->drop;
	wait_until { $a->log_since($mark) =~ /connected to ZooKeeper server .*(?s:.*)connected to ZooKeeper server/ } 'the worker to be connected again';
	$a->wait_session;
	is($a->session->query("SELECT zk_lock('/b/next', '30s') AND zk_unlock('/b/next')"), 't', 'and locks are granted');
};

subtest 'a server that hangs up before: it may have its limit of connections' => sub {
	my $mark = $a->log_mark;
	$a->cut_off($proxy);
	my @others = map { my $shell = Zklock::Shell->new; $shell->connect($zk->connect_string); $shell } 1 .. 8;
	$proxy->heal;
	wait_until { ($a->zk_session->{last_error} || '') =~ /closes new connections at once.*maxClientCnxns/ } 'the reason in zk_session';
	$_->stop foreach @others;
	$a->wait_session;
	my @told = $a->log_since($mark) =~ /zklock worker (?:LOG|WARNING): *(.*)$/mg;
	unlike(join("\n", @told, $a->zk_session->{last_error}), qr/retcode|errno/, 'in sentences');
};

subtest 'something else at the port: what reads as the end of the session is a loud loss' => sub {
	my $other = Zklock::Server->new('other', extension => 0, preload => 0, conf => ["listen_addresses = '127.0.0.1'"]);
	my $d = Zklock::Server->new('d', zookeeper => $proxy, conf => ["zklock.session_timeout = '60s'"]);
	hold($d, 'keeper', '/b/kept');
	in_transaction($d, 'committer', '/b/xact', 'CREATE TABLE t ()');
	my ($mark, $expirations, $id) = ($d->log_mark, $d->zk_session->{expirations}, $d->session_id);
	$proxy->target($other->value('SHOW port'), raw => 1);
	$proxy->drop;
	ok($d->wait_lock($s{keeper}, 'lost', '/b/kept'), 'the lock is lost');
	is($d->zk_session->{expirations}, $expirations + 1, 'as with a session that has expired');
	is($s{committer}->try('COMMIT')->{sqlstate}, '40001', 'a transaction that relied on one fails at commit');
	$d->assert_log($mark, qr/LOG:  what answers at "zklock.servers" does not prove to be a ZooKeeper server/, 'the log tells what is there now');
	$proxy->reset_counts;
	wait_until { $proxy->accepted > 4 } 'some attempts';
	is(scalar(() = $d->log_since($mark) =~ /LOG:  what answers at/g), 1, 'once');
	is($d->zk_session->{session_id}, undef, 'and no session begins there');
	$proxy->target($zk);
	$d->wait_session;
	is($s{keeper}->query("SELECT zk_unlock('/b/kept')"), 'f', 'the holder hears of the loss');
	is($s{keeper}->query("SELECT zk_try_lock('/b/kept')"), 'f', 'and does not get the lock while the old session lives');
	$zk->shell->expire_session($id);
	hold($d, 'keeper', '/b/kept');
	(delete $s{$_})->disconnect foreach qw(committer keeper);
	$d->stop;
};

my ($capping, $c) = cast('c', zk => { maxSessionTimeout => 2000 },
	connect => 0, timeout => '10s', conf => ["zklock.tick_time = '1100ms'"]);

subtest 'ZooKeeper caps the session timeout' => sub {
	$c->wait_log(qr/WARNING:  "zklock\.tick_time" is 1100 ms, too long for a session timeout of 2000 ms/, 0);
	my $told = qr/ZooKeeper has granted a session timeout of 2000 ms of the @{[ 1000 * scaled(10) ]} ms asked for\. .* 2200 ms are needed\./;
	$c->assert_log(0, qr/DETAIL:  .*locks are neither granted nor kept\. $told/, 'the log tells what was asked for, granted, and needed');
	$c->assert_log(0, qr/HINT: .*maxSessionTimeout/, 'and where it is set');
	my $beats = $c->zk_session->{requests};
	foreach my $when ('at first', 'nor with heartbeats in time, as they come here')
	{
		fails(on($c, 'asker')->try("SELECT zk_try_lock('/o/free')"), '58030', "no lock is granted $when",
			message => qr/: the ZooKeeper session is not proved to be alive$/, detail => $told, hint => qr/zklock\.tick_time.*maxSessionTimeout/);
		my $session = $c->zk_session;
		is($session->{state}, 'connected', 'zk_session says that there is a connection');
		like($session->{obstacle} // '', $told, 'and what is in the way');
		wait_until { $c->zk_session->{requests} > $beats + 30 } 'many heartbeats';
	}
};

subtest 'a new worker that continues the session tells, and a reload' => sub {
	my ($mark, $worker) = ($c->log_mark, $c->worker_pid);
	$c->value("SELECT pg_terminate_backend($worker)");
	$c->assert_log($mark, qr/WARNING:  "zklock\.tick_time" is 1100 ms, too long for a session timeout of 2000 ms/, 'a new worker');
	$mark = $c->log_mark;
	$c->set_conf('zklock.tick_time' => '1900ms');
	$c->assert_log($mark, qr/WARNING:  "zklock\.tick_time" is 1900 ms, too long for a session timeout of 2000 ms/, 'a reload');
	$c->set_conf('zklock.tick_time' => '500ms');
	$c->wait_session;
	is(on($c, 'asker')->query("SELECT zk_lock('/o/free')"), 't', 'with the right value locks are granted');
	all_disconnect();
};

subtest 'a missing chroot is noticed before a lock is asked for' => sub {
	my $f = Zklock::Server->new('f', zookeeper => $capping, chroot => '/missing', connect => 0);
	$f->assert_log(0, qr/WARNING:  the chroot "\/missing" in "zklock\.servers" does not exist in ZooKeeper/, 'the log tells');
	like($f->zk_session->{last_error}, qr/chroot in "zklock\.servers" does not exist/, 'and zk_session');
	my $mark = $f->log_mark;
	$capping->shell->create('/missing');
	$f->assert_log($mark, qr/LOG:  the chroot "\/missing" in "zklock\.servers" exists now/, 'and when it is there');
	hold($f, 'holder', '/o/held');
	is(scalar(() = $f->log_since(0) =~ /WARNING:  the chroot/g), 1, 'it has been told once');
	unlike($f->log_since(0), qr{path "/"}, 'and not as if it were work on the path "/", which heartbeats look at');
	all_disconnect();
	$f->stop;
};

done_clean($zk, $a);
