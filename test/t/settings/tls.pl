# Copyright (c) 2026, zklock contributors
#
# TLS, with a client library that has it and a ZooKeeper server that demands certificates: locks,
# outages and expired sessions are as they are without. And TLS that does not work: zk_session and the log say what is
# wrong. Files are read for each connection, and those that cannot be used then leave the ones that were read before.
# And TLS through stunnel, which refuses a server with a certificate for another host.

use Zklock::Test;
use File::Basename qw(dirname);
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Zklock::Cast;
use Zklock::Process;
use Zklock::Tls;
use Zklock::Util qw(on_failure secret tail);

plan skip_all => 'there is no client library with TLS (ZKLOCK_TLS_CLIENT)' unless Zklock::Tls->available;

my $tls   = Zklock::Tls->new;
my $other = Zklock::Tls->new;
$_->certificate('client') foreach $tls, $other;
$tls->certificate('expired', expired => 1);
my $zk      = Zklock::ZooKeeper->standalone(tls => $tls);
my $address = '127.0.0.1:' . $zk->tls_port;
my %right   = (%{ { $tls->settings('client') } }, 'zklock.servers' => $address);
# This one's server stands still in the handshake.
my $hung = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die $!;
my $a = Zklock::Server->new(
	'a',
	zookeeper   => $address,
	conf        => [ $tls->conf('client'), 'zklock.tick_time = 500', q(zklock.session_timeout = '40s') ],
	# The system trusts this authority, zklock does not.
	environment => { %{ Zklock::Tls->library }, SSL_CERT_FILE => $tls->file('ca.pem') });
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
	$a->append_conf('postgresql.conf', sprintf(q(zklock.servers = '0.0.0.0:%d,%s'), $hung->sockport, $address));
	my $left;
	for (1 .. 20)
	{
		my $mark = $a->log_mark;
		$a->start_connected;
		is($a->zk_session->{server}, $address, 'connected to the other one');
		unlike($a->log_since($mark), qr/worker restarts/, 'by the same worker');
		$left = $a->log_since($mark) =~ /LOG:  ZooKeeper server [\d.]+:${\ $hung->sockport} does not answer/;
		$a->stop;
		last if $left;    # It begins with either.
	}
	ok($left, 'after the one that is silent');
	$a->append_conf('postgresql.conf', "zklock.servers = '$address'");
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

hold($a, 'holder', '/tls/a');
hold($plain, 'plain', '/tls/b');

subtest 'TLS is not switched on while a lock is held' => sub {
	my %before = map { $_ => $plain->zk_session->{$_} } qw(session_id worker_pid reconnects);
	my $mark = $plain->log_mark;
	$plain->set_conf(%right);
	$plain->assert_log($mark, qr/changed settings of zklock wait until no lock is held: "zklock.servers", "zklock.tls_ca_file"/, 'it waits');
	is_deeply({ map { $_ => $plain->zk_session->{$_} } keys %before }, \%before, 'and the session goes on');
	is($plain->lock_count(q(state = 'held')), 1, 'with its lock');
	$plain->set_conf('zklock.tls_ca_file' => '', 'zklock.tls_cert_file' => '', 'zklock.tls_key_file' => '', 'zklock.servers' => $zk->connect_string);
};

subtest 'a library without TLS' => sub {
	plan skip_all => 'the one that is installed can do TLS' if Zklock::Tls->is_installed;
	my $none = Zklock::Server->new('none', zookeeper => $address, connect => 0, conf => [ $tls->conf('client') ]);
	$none->assert_log(0, qr/"zklock.tls_ca_file" is set, but ZooKeeper's client library, as it is installed here, cannot do TLS/, 'says so');
	$none->stop;
};

subtest 'files that cannot be used' => sub {
	my %setting = map { $_ => "zklock.tls_${_}_file" } qw(ca cert key);
	my %other   = (cert => 'key', key => 'cert');
	my %good    = (ca => 'ca.pem', cert => 'client.pem', key => 'client.key');
	my %file    = map { $_ => $tls->file("faulty.$_") } keys %setting;
	system("openssl rsa -aes128 -passout pass:secret -in '@{[ $tls->file('client.key') ]}' -out '@{[ $tls->file('locked.key') ]}' 2>/dev/null") == 0
	  or die;
	append_to_file($tls->file('nothing.pem'), "nothing\n");
	append_to_file($tls->file('large.pem'), "nothing\n" x 150_000);

	my $copy = sub ($which, $from, $mode = 0600) {
		rmdir $file{$which};
		unlink $file{$which};
		system('cp', $from, $file{$which}) == 0 && chmod $mode, $file{$which} or die;
	};
	my $server = Zklock::Server->new('faulty', zookeeper => $address, connect => 0, environment => Zklock::Tls->library,
		conf => [ q(zklock.session_timeout = '3s'), map { "$setting{$_} = '$file{$_}'" } keys %file ]);

	# For each attempt to connect, files are read anew.
	my $refused = sub ($name, $reason, $mark = $server->log_mark) {
		wait_until
		{
			my $shown = $server->zk_session;
			($shown->{last_error} // '') =~ /^$reason$/ && $shown->{state} eq 'down';
		}
		"$name: zk_session to say so, and that there is no connection";
		$server->assert_log($mark, qr/LOG:  $reason$/m, "$name: so does the log");
		unlike($server->zk_session->{last_error}, qr{/tmp|\.pem|\.key}, 'and only the log names the file');
	};
	my $faulty = sub ($which, $name, $reason, $put) {
		my $mark = $server->log_mark;
		$put->();
		$copy->($_, $tls->file($good{$_})) foreach grep { $_ ne $which } keys %file;
		$refused->($name, qr/could not use "$setting{$which}": $reason/, $mark);
	};
	$faulty->($_, "a missing $_ file", qr/No such file or directory/, sub { unlink $file{$_} }) foreach qw(ca cert key);
	$faulty->($_, "no $_ in the file", qr/it has no certificate in PEM format/, sub { $copy->($_, $tls->file('nothing.pem')) }) foreach qw(ca cert);
	$faulty->('ca', 'a file of more than a megabyte', qr/it is too large/, sub { $copy->('ca', $tls->file('large.pem')) });
	$faulty->('ca', 'a directory', qr/it is not a regular file/, sub { unlink $file{ca}; mkdir $file{ca} or die; });
	my $no_key = qr/it is not the key of the certificate, in PEM format and without a password/;
	$faulty->('key', 'a key that others may read', qr/others than its owner may access it/, sub { $copy->('key', $tls->file('client.key'), 0640) });
	$faulty->('key', 'a key with a password', $no_key, sub { $copy->('key', $tls->file('locked.key')) });
	$faulty->('key', 'the key of another certificate', $no_key, sub { $copy->('key', $other->file('client.key')) });
	$faulty->('cert', 'an expired certificate', qr/the certificate has expired/, sub { $copy->('cert', $tls->file('expired.pem')) });
	foreach (sort keys %other)
	{
		my $mark = $server->log_mark;
		$server->set_conf($setting{$_} => '');
		$refused->("no $_ file", qr/"$setting{$other{$_}}" is set, but "$setting{$_}" is not/, $mark);
		$server->set_conf($setting{$_} => $file{$_});
	}
	$copy->($_, $tls->file($good{$_})) foreach keys %file;
	$server->wait_session;
	pass('with files that can be used it connects');
	$server->stop;
};

subtest 'files are read for each connection' => sub {
	my $before = $a->zk_session;
	my $is_continued = sub {
		$a->wait_session;
		is($a->zk_session->{$_}, $before->{$_}, "the same $_") foreach qw(session_id worker_pid);
		is($a->lock_count(q(state = 'held')), 1, 'the lock is held');
	};
	my %good = map { $_ => slurp_file($tls->file($_)) } qw(ca.pem client.key);
	my $write = sub ($name, $text) { secret($tls->file($name), $text); };

	# The ZooKeeper server has read its own, of the same name, when it started: the worker's is a copy.
	my $mark = $a->log_mark;
	$write->('client.key', "nothing\n");
	$zk->restart;
	$a->wait_log(qr/could not use "zklock.tls_key_file": it is not the key/, $mark);
	$is_continued->();
	pass('if one cannot be used then, those that were read before serve');
	$write->('client.key', $good{'client.key'});

	my $own = $tls->file('own-ca.pem');
	$write->('own-ca.pem', $good{'ca.pem'});
	$s{holder}->query('SELECT zk_unlock_all()');
	$a->reconfigure('zklock.tls_ca_file' => $own);
	hold($a, 'holder', '/tls/a');
	$before = $a->zk_session;
	$write->('own-ca.pem', slurp_file($other->file('ca.pem')));
	$zk->restart;
	wait_until { ($a->zk_session->{last_error} // '') =~ /TLS with ZooKeeper server \S+ fails/ } 'the next connection to fail';
	pass("an authority that is not the server's counts from the next connection on");
	$write->('own-ca.pem', $good{'ca.pem'});
	$is_continued->();
};

subtest 'who is asked for no certificate needs none' => sub {
	my $trusting = Zklock::Tls->new(client_auth => 'none');
	my $there = Zklock::ZooKeeper->standalone(tls => $trusting);
	my $bare = Zklock::Server->new(
		'bare',
		zookeeper   => '127.0.0.1:' . $there->tls_port,
		conf        => [ sprintf(q(zklock.tls_ca_file = '%s'), $trusting->file('ca.pem')), 'zklock.tick_time = 500' ],
		environment => Zklock::Tls->library);
	is($bare->value(q(SELECT zk_lock('/tls/bare'), zk_unlock('/tls/bare'))), 't|t', 'a lock, without a certificate');
	is($bare->zk_session->{server}, '127.0.0.1:' . $there->tls_port, 'by the port with TLS');
	my $id = $bare->session_id;
	$bare->restart_worker;
	$bare->wait_session;
	is($bare->session_id, $id, 'the next worker continues the session');
	$bare->set_conf('zklock.servers' => $address, 'zklock.tls_ca_file' => $tls->file('ca.pem'));
	# With TLS 1.3 it may refuse when the handshake is over for the client.
	wait_until { ($bare->zk_session->{last_error} // '') =~ /TLS with ZooKeeper server \Q$address\E fails|\Q$address\E closes .* refuse the certificate/ }
	'a server that demands one to refuse';
	pass('a server that demands one refuses');
	$bare->stop;
};

subtest 'a server that starts with what does not work says why, and connects when it is mended' => sub {
	$s{holder}->query('SELECT zk_unlock_all()');
	$a->stop;
	my $mark = $a->log_mark;
	chmod 0644, $tls->file('client.key');
	$a->start;
	$a->assert_log($mark, qr/could not use "zklock.tls_key_file": others than its owner may access it/, 'the log says why');
	$a->wait_value('SELECT state FROM zk_session', 'down');
	chmod 0600, $tls->file('client.key');
	$a->wait_session;
	$a->stop;
	$mark = $a->log_mark;
	$a->append_conf('postgresql.conf', sprintf(q(zklock.servers = '%s'), $zk->connect_string));
	$a->append_conf('postgresql.auto.conf', sprintf(q(zklock.servers = '%s'), $zk->connect_string));
	$a->start;
	$a->assert_log($mark, qr/TLS with ZooKeeper server \S+ fails/, 'so it does of a port without TLS');
	$a->stop;
	$a->append_conf('postgresql.auto.conf', "zklock.tls_ca_file = ''\nzklock.servers = '$address'");
	$a->start;
	wait_until { ($a->zk_session->{last_error} // '') =~ /closes new connections at once.* demand TLS/ } 'the reason, without TLS at a port that has it';
};

subtest 'through stunnel a client library without TLS gets along, as doc/operations.md has it' => sub {
	plan skip_all => 'stunnel is not installed' unless -x '/usr/bin/stunnel4' && -x '/usr/bin/openssl';
	my $tls = Zklock::Tls->new(name => 'zk1.example');
	$tls->certificate('client');
	my $zk = Zklock::ZooKeeper->standalone(tls => $tls);

	# Both of its sections lead to this server, which is zk1.example and not zk2.example.
	my ($conf) = slurp_file(dirname(__FILE__) . '/../../../doc/operations.md') =~ /^```ini\n(.*?)^```$/ms;
	my $directory = $tls->file('.');
	my %port = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } 1, 2;
	$conf =~ s{/etc/stunnel}{$directory}g;
	$conf =~ s{^connect = .*$}{'connect = 127.0.0.1:' . $zk->tls_port}gme;
	$conf =~ s{^accept = 127.0.0.1:1218(\d)$}{accept = 127.0.0.1:$port{$1}}gm;
	append_to_file($tls->file('stunnel.conf'), "foreground = yes\npid =\n$conf");
	my $log = "$PostgreSQL::Test::Utils::log_path/stunnel.log";
	my $stunnel = Zklock::Process->new(name => 'stunnel', log => $log, argv => [ 'stunnel4', $tls->file('stunnel.conf') ]);
	on_failure('stunnel', sub { return tail($log, 20); });
	wait_until { -e $log && slurp_file($log) =~ /Configuration successful/ } 'stunnel to start';

	my $server = Zklock::Server->new(
		'main',
		zookeeper => "127.0.0.1:$port{1}",
		conf      => ['zklock.tick_time = 500']);
	is($server->value(q(SELECT zk_lock('/tls/a'), zk_unlock('/tls/a'))), 't|t', 'a lock, through stunnel');
	is($server->zk_session->{server}, "127.0.0.1:$port{1}", 'by its port for that server');

	my $mark = -s $log;
	$server->set_conf('zklock.servers' => "127.0.0.1:$port{2}");
	wait_until { slurp_file($log, $mark) =~ /CERT: Subject checks failed/ } 'stunnel to refuse a certificate for another host';
	pass('a certificate for another host is refused');
	isnt($server->zk_session->{state}, 'connected', 'and there is no connection');
	$server->set_conf('zklock.servers' => "127.0.0.1:$port{1}");
	$server->wait_session;
	is($server->value(q(SELECT zk_lock('/tls/a'), zk_unlock('/tls/a'))), 't|t', 'the right host serves');
};

$s{plain}->query('SELECT zk_unlock_all()');
done_clean($zk, $plain);
