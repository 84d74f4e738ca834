# Copyright (c) 2026, zklock contributors
#
# TLS through stunnel, as doc/operations.md has it, for a client library without TLS: it works, and
# a server with a certificate for another host is refused.

use Zklock::Test;
use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Zklock::Process;
use Zklock::Tls;
use Zklock::Util qw(on_failure tail);

plan skip_all => 'stunnel is not installed' unless -x '/usr/bin/stunnel4' && -x '/usr/bin/openssl';

my $tls = Zklock::Tls->new(name => 'zk1.example');
$tls->certificate('client');
my $zk = Zklock::ZooKeeper->standalone(tls => $tls);

# Both of its sections lead to this server, which is zk1.example and not zk2.example.
my ($conf) = slurp_file(dirname(__FILE__) . '/../../doc/operations.md') =~ /^```ini\n(.*?)^```$/ms;
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
done_testing;
