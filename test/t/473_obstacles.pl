# Copyright (c) 2026, zklock contributors
#
# Connected, and yet no lock is granted: ZooKeeper caps the session timeout, the chroot is
# missing, it demands credentials. The log,
# zk_session and errors say so before anybody has to guess.

use Zklock::Test;
use Zklock::Cast;
use Zklock::Util qw(secret);

my ($zk, $a) = cast('a', zk => { maxSessionTimeout => 2000 },
	connect => 0, timeout => '10s', conf => ["zklock.tick_time = '2s'"]);

subtest 'ZooKeeper caps the session timeout' => sub {
	$a->wait_log(qr/WARNING:  "zklock\.tick_time" is 2000 ms, too long for a session timeout of 2000 ms/, 0);
	$a->assert_log(0, qr/DETAIL: .* has granted a session timeout of 2000 ms of the 10000 ms asked for\. .* 4000 ms are needed/,
		'the log tells what was asked for, granted, and needed');
	$a->assert_log(0, qr/HINT: .*maxSessionTimeout/, 'and where it is set');
	# The first lease of a session may be used up.
	my $result;
	wait_until
	{
		$result = on($a, 'asker')->try("SELECT zk_try_lock('/o/free') AND zk_unlock('/o/free')");
		!$result->{ok} && ($result->{detail} || '') =~ /granted/;
	}
	'an error';
	like($result->{detail}, qr/granted a session timeout of 2000 ms of the 10000 ms asked for/, 'so does an error');
	like($result->{hint}, qr/zklock\.tick_time.*maxSessionTimeout/, 'with a hint');
	$s{asker}->query('SELECT zk_unlock_all()');
};

subtest 'a new worker that continues the session tells, and a reload' => sub {
	my ($mark, $worker) = ($a->log_mark, $a->worker_pid);
	$a->value("SELECT pg_terminate_backend($worker)");
	$a->assert_log($mark, qr/WARNING:  "zklock\.tick_time" is 2000 ms, too long for a session timeout of 2000 ms/, 'a new worker');
	$mark = $a->log_mark;
	$a->set_conf('zklock.tick_time' => '1900ms');
	$a->assert_log($mark, qr/WARNING:  "zklock\.tick_time" is 1900 ms, too long for a session timeout of 2000 ms/, 'a reload');
	$a->set_conf('zklock.tick_time' => '500ms');
	$a->wait_session;
	is(on($a, 'asker')->query("SELECT zk_lock('/o/free')"), 't', 'with the right value locks are granted');
	all_disconnect();
};

subtest 'a missing chroot is noticed before a lock is asked for' => sub {
	my $b = Zklock::Server->new('d', zookeeper => $zk, chroot => '/missing', connect => 0);
	$b->assert_log(0, qr/WARNING:  the chroot "\/missing" in "zklock\.servers" does not exist in ZooKeeper/, 'the log tells');
	like($b->zk_session->{last_error}, qr/chroot in "zklock\.servers" does not exist/, 'and zk_session');
	my $mark = $b->log_mark;
	$zk->shell->create('/missing');
	$b->assert_log($mark, qr/LOG:  the chroot "\/missing" in "zklock\.servers" exists now/, 'and when it is there');
	hold($b, 'holder', '/o/held');
	my $lines = () = $b->log_since(0) =~ /WARNING:  the chroot/g;
	is($lines, 1, 'it has been told once');
	unlike($b->log_since(0), qr{path "/"}, 'and not as if it were work on the path "/", which heartbeats look at');
	all_disconnect();
	$b->stop;
};

subtest 'one chroot for each server is refused' => sub {
	fails(on($a, 'setter')->try("ALTER SYSTEM SET zklock.servers = 'h1:2181/a,h2:2181/a'"), '22023', 'with the code for a bad value',
		detail => 'There is one chroot for all servers; it follows the last of them.');
	all_disconnect();
};

$a->stop;

subtest 'ZooKeeper demands credentials, and there are none' => sub {
	my $strict = Zklock::ZooKeeper->standalone(start => 0,
		java => [ '-Dzookeeper.enforce.auth.enabled=true', '-Dzookeeper.enforce.auth.schemes=digest' ]);
	$strict->start(wait => 0);
	my $b = Zklock::Server->new('e', zookeeper => $strict, connect => 0);
	$b->wait_session('authentication failed');
	$b->assert_log(0, qr/LOG:  ZooKeeper demands credentials, and "zklock\.auth_file" is not set/, 'the log tells');
	unlike($b->log_since(0), qr/refused the credentials/, 'and not of credentials that do not exist');
	like($b->zk_session->{last_error}, qr/demands credentials/, 'so does zk_session');
	# Nothing is held: settings that are right are taken up at once.
	$b->set_conf('zklock.auth_file' => secret($b->data_dir . '/auth', "digest:zklock:secret\n"));
	$b->wait_session;
	$b->stop;
};

done_testing;
