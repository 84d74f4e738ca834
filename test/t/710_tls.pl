# Copyright (c) 2026, zklock contributors
#
# TLS, with a client library that has it and a ZooKeeper server that demands certificates: locks,
# outages and expired sessions are as they are without.

use Zklock::Test;
use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use Zklock::Cast;
use Zklock::Tls;

plan skip_all => 'there is no client library with TLS (ZKLOCK_TLS_CLIENT)' unless Zklock::Tls->available;

my $tls = Zklock::Tls->new;
$tls->certificate('client');
my $zk      = Zklock::ZooKeeper->standalone(tls => $tls);
my $address = '127.0.0.1:' . $zk->tls_port;
# This one's server stands still in the handshake.
my $hung = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die $!;
my $a = Zklock::Server->new(
	'a',
	zookeeper   => $address,
	conf        => [ $tls->conf('client'), 'zklock.tick_time = 500', q(zklock.session_timeout = '20s') ],
	environment => Zklock::Tls->library);
my $plain = Zklock::Server->new('plain', zookeeper => $zk);

subtest 'a server with TLS and one without exclude each other' => sub {
	is($a->zk_session->{server}, $address, 'connected to the port with TLS');
	hold($a, 'one', '/tls/a');
	queue($plain, 'two', '/tls/a');
	$s{one}->query('SELECT zk_unlock_all()');
	is($s{two}->finish, 't', 'in turns');
	queue($a, 'three', '/tls/a');
	$s{two}->query('SELECT zk_unlock_all()');
	is($s{three}->finish, 't', 'and back');
};

subtest 'the session outlives worker and ZooKeeper server, with its lock' => sub {
	my $id = $a->session_id;
	$a->restart_worker;
	$a->wait_session;
	is($a->session_id, $id, 'the next worker continues the session');
	$zk->restart;
	$a->wait_session;
	is($a->session_id, $id, 'so it does when the server is back');
	ok($a->lock_count(q(path = '/tls/a' AND state = 'held')), 'the lock is held');
};

subtest 'that a session has expired is believed, and another one begins' => sub {
	my $id = $a->session_id;
	$a->expire_session($zk);
	$a->wait_value(q(SELECT state FROM zk_locks), 'lost');
	$s{three}->query('SELECT zk_unlock_all()');
	wait_until { my $session = $a->zk_session; $session->{state} eq 'connected' && $session->{session_id} ne $id } 'another session';
	$a->wait_session;
	hold($a, 'three', '/tls/a');
	$s{three}->query('SELECT zk_unlock_all()');
};

subtest 'a server that stands still in the handshake is left for another' => sub {
	$a->stop;
	$a->append_conf('postgresql.conf', sprintf(q(zklock.servers = '127.0.0.1:%d,%s'), $hung->sockport, $address));
	foreach my $start (1 .. 3)
	{
		$a->start_connected;
		is($a->zk_session->{server}, $address, "start $start: connected to the other one");
		$a->stop;
	}
	$a->start_connected;
};

subtest 'no secret gets into a core file' => sub {
	my ($worker, $backend) = map { $_->zk_session->{worker_pid} } $a, $plain;
	is((stat "/proc/$worker/environ")[4], 0, 'a worker with a key leaves none');
	is((stat "/proc/$backend/environ")[4], $>, 'others may');
	like(slurp_file("/proc/$backend/smaps"), qr/ rw-s .*?^VmFlags:.* dd\b/ms, 'without the page that has the password of the session');
};

subtest 'no secret is shown' => sub {
	my $password = join('', slurp_file($a->session_file) =~ /^password (\w+)$/m);
	my ($key) = slurp_file($tls->file('client.key')) =~ /\n(\S{40})/;
	my $log = $a->log_since(0);
	isnt($password, '', 'the session has a password');
	unlike($log, qr/\Q$_\E/i, 'not in the log') foreach $password, $key;
	$a->value('CREATE ROLE nobody LOGIN');
	my $session = $a->session(user => 'nobody');
	is($session->query(q(SELECT count(*) FROM pg_settings WHERE name ~ '^zklock.tls_')), '0', 'names of files are for superusers');
	is($session->try("SHOW zklock.tls_${_}_file")->{sqlstate}, '42501', "the $_ file's") foreach qw(ca cert key);
};

done_clean($zk, $a, $plain);
