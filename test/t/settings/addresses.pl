# Copyright (c) 2026, zklock contributors
#
# The names of ZooKeeper servers get other addresses, as they do when servers move.
#
# The client library is given addresses, not names. So the names are looked up again now and then, and when a connection
# is lost; if that makes a difference a new worker connects, to the same session. A library makes the names.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Zklock::Cast;

my $hosts = PostgreSQL::Test::Utils::tempdir . '/hosts';
sub zookeeper_is_at($address)
{
	append_to_file("$hosts.new", "$address zookeeper.test\n");
	rename "$hosts.new", $hosts or die "$hosts: $!";
	return;
}

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
local $ENV{NAMES} = $hosts;
my $names = PostgreSQL::Test::Utils::tempdir . '/names.so';
system_or_bail('gcc', '-shared', '-fPIC', '-o', $names, 'test/preload/names.c', '-ldl');
local $ENV{ZKLOCK_PRELOAD} = join(' ', grep { defined } $ENV{ZKLOCK_PRELOAD}, $names);

zookeeper_is_at('127.0.0.1');
my $a = Zklock::Server->new(
	'a',
	zookeeper => 'zookeeper.test:' . $proxy->port,
	conf      => ["zklock.session_timeout = '60s'"]);
hold($a, 'holder', '/a/lock');
my $before = holdings($a);
my $id     = $a->session_id;

sub other_addresses($address)
{
	my $mark   = $a->log_mark;
	my $worker = $a->worker_pid;
	zookeeper_is_at($address);
	$a->wait_log(qr/LOG:  zklock worker restarts because of changed addresses of ZooKeeper servers/, $mark);
	$a->wait_new_worker($worker);
	return;
}

# Nobody is there: nothing is found out but that.
$a->cut_off($proxy);
my $mark = $a->log_mark;
other_addresses('127.0.0.2');
$a->wait_log(qr/LOG:  could not connect to ZooKeeper server 127\.0\.0\.2:\d+: Connection refused/, $mark);
is($a->zk_session->{state}, 'connecting', 'the worker tries that');
is_deeply(holdings($a), $before, 'when the name of a server gets another address, holders keep their locks');
$proxy->heal;
other_addresses('127.0.0.1');
$a->wait_session;
is($a->session_id, $id, 'the session goes on when it is found');
is_deeply(holdings($a), $before, 'and so do locks');
is($s{holder}->query("SELECT zk_unlock('/a/lock')"), 't', 'until they are released');
all_disconnect();
$a->assert_clean($zk, '/a/lock');

subtest 'names that take long to be looked up' => sub {
	my $directory = PostgreSQL::Test::Utils::tempdir;
	my $library   = "$directory/slow_names.so";
	system_or_bail('gcc', '-shared', '-fPIC', '-o', $library, 'test/preload/slow_names.c', '-ldl');
	local $ENV{SLOW_NAMES} = "$directory/slow";
	append_to_file($ENV{SLOW_NAMES}, '');
	local $ENV{ZKLOCK_PRELOAD} = "$library $ENV{ZKLOCK_PRELOAD}";
	my $b = Zklock::Server->new('b', zookeeper => 'zookeeper.test:' . $proxy->port, connect => 0, conf => [q(listen_addresses = '')]);
	$b->wait_session('connecting');
	# For longer than it takes until the worker looks for another way.
	my $since = $b->value('SELECT clock_timestamp()');
	$b->wait_value("SELECT clock_timestamp() > '$since'::timestamptz + interval '12s'", 't');
	my $worker = $b->worker_pid;
	unlike($b->log_since(0), qr/terminated by signal/, 'the worker waits');
	unlink $ENV{SLOW_NAMES};
	$b->wait_session;
	is($b->worker_pid, $worker, 'and connects when they are there');
	$b->stop;
};

subtest 'the addresses change one by one: no lock is lost while one is right' => sub {
	my @proxies = map { Zklock::Proxy->start($zk) } 1 .. 3;
	my $all_are_at = sub (@addresses) {
		append_to_file("$hosts.new", join('', map { "$addresses[$_] zookeeper$_.test\n" } 0 .. 2));
		rename "$hosts.new", $hosts or die "$hosts: $!";
	};
	# Nobody listens at 127.0.0.2.
	$all_are_at->('127.0.0.2', '127.0.0.2', '127.0.0.1');
	my $c = Zklock::Server->new('c',
		zookeeper => join(',', map { "zookeeper$_.test:" . $proxies[$_]->port } 0 .. 2),
		conf      => ["zklock.session_timeout = '6s'"]);
	hold($c, 'holder', '/a/one_by_one');
	my ($held, $session) = (holdings($c), $c->session_id);
	$all_are_at->(('127.0.0.1') x 3);
	$proxies[2]->cut;
	$c->wait_session('connecting');
	wait_until { my $s = $c->zk_session; $s->{state} eq 'connected' && $s->{server} ne $proxies[2]->connect_string } 'another server';
	$c->wait_session;
	is($c->session_id, $session, 'the session goes on at an address that is new');
	is_deeply(holdings($c), $held, 'with its lock');

	# The next worker has the addresses of the one before.
	unlink $hosts;
	append_to_file($hosts, "127.0.0.3 elsewhere.test\n");
	$c->restart_worker;
	$c->wait_session;
	is($c->session_id, $session, 'nor is anything lost while names cannot be looked up');
	is_deeply(holdings($c), $held, 'by another worker');
	all_disconnect();
	$c->assert_clean($zk, '/a/one_by_one');
};
done_testing;
