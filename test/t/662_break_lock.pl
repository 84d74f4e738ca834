# Copyright (c) 2026, zklock contributors
#
# zk_break_lock(): deletes the node of a living contender, whatever client it is, and only that.

use strict;
use warnings;

use Test::More;
use Zklock::Cast qw(:DEFAULT lost clean);
use Zklock::JavaPeer;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my $a     = Zklock::Server->new('a', zookeeper => $proxy);
my $b     = Zklock::Server->new('b', zookeeper => $zk);
my $shell = $zk->shell;
my $java  = Zklock::JavaPeer->new;
my $java_session = $java->connect($zk->connect_string, 10000);
my $admin = $a->session(name => 'admin');
my $user  = $admin->query('SELECT session_user');

# As one would at 3 a.m.: who is there, and away with it
sub node { my ($path, $where) = @_; return $admin->query("SELECT node FROM zk_contenders('$path') WHERE $where"); }

sub break_it
{
	my ($path, $where) = @_;
	return $admin->query("SELECT zk_break_lock('$path', node) FROM zk_contenders('$path') WHERE $where");
}

sub fails
{
	my ($session, $arguments, $sqlstate, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($session->try("SELECT zk_break_lock($arguments)")->{sqlstate}, $sqlstate, $name);
}

subtest 'a holder of the same server hears of its loss, and the next one gets the lock' => sub {
	hold($a, 'holder', '/b/local');
	queue($a, 'waiter', '/b/local');
	my $mark = $a->log_mark;
	my $node = node('/b/local', 'granted');
	is(break_it('/b/local', 'granted'), 't', 'the node is deleted');
	lost($a, 'holder', '/b/local');
	is($s{waiter}->finish, 't', 'the waiting session holds the lock');
	my ($pid, $holder) = ($admin->pid, $s{holder}->pid);
	$a->assert_log($mark, qr{LOG:  role "$user", process $pid, deleted node "/b/local/$node" by zk_break_lock\(\)}, 'the log says who did it');
	$a->assert_log($mark, qr{DETAIL:  It was that of process $holder of server a, in ZooKeeper session 0x}, 'to whom');
	is($admin->query("SELECT zk_break_lock('/b/local', '$node')"), 'f', 'the node is gone');
	all_disconnect();
};

subtest 'a holder of another server' => sub {
	hold($b, 'holder', '/b/remote');
	queue($a, 'waiter', '/b/remote');
	is(break_it('/b/remote', "server = 'b'"), 't', 'the node is deleted');
	is($s{waiter}->finish, 't', 'the lock is free');
	lost($b, 'holder', '/b/remote');
	all_disconnect();
};

subtest 'a session that waits queues again' => sub {
	hold($a, 'holder', '/b/waits');
	queue($b, 'first', '/b/waits');
	$b->wait_queued($s{first});
	is(break_it('/b/waits', 'NOT granted'), 't', 'its node is deleted');
	wait_until { my @rows = @{ $admin->try(q{SELECT server FROM zk_contenders('/b/waits') WHERE NOT granted})->{rows} }; @rows == 1 }
		'a new one';
	$s{holder}->query("SELECT zk_unlock('/b/waits')");
	is($s{first}->finish, 't', 'and is served');
	all_disconnect();
};

subtest "a client of Curator's" => sub {
	$java->acquire('holder', '/b/java', -1);
	queue($a, 'waiter', '/b/java');
	my $mark = $a->log_mark;
	my $owner = $admin->query(q{SELECT owner FROM zk_contenders('/b/java') WHERE granted});
	is(break_it('/b/java', 'granted'), 't', 'its node is deleted');
	is($s{waiter}->finish, 't', 'the lock is free');
	$a->assert_log($mark, qr/DETAIL:  It was that of \Q$owner\E, in ZooKeeper session $java_session\./, 'the log names the client');
	all_disconnect();
};

subtest 'permits, and turns to get one' => sub {
	on($a, 'holder')->query("SELECT zk_semaphore_acquire('/b/slots', 1)");
	on($b, 'first')->query_start("SELECT zk_semaphore_acquire('/b/slots', 1)");
	wait_until { 2 == $zk->children('/b/slots/leases') } 'a session that waits for the permit';
	on($a, 'second')->query_start("SELECT zk_semaphore_acquire('/b/slots', 1)");
	wait_until { 2 == $zk->children('/b/slots/locks') } 'one that waits for its turn';
	is(break_it('/b/slots', q{kind = 'turn' AND granted}), 't', 'a turn is broken');
	wait_until { 3 == $zk->children('/b/slots/leases') } 'the next has it, and both wait for the permit';
	is(break_it('/b/slots', q{kind = 'semaphore' AND granted}), 't', 'a permit is broken');
	$a->wait_lock($s{holder}, 'lost', '/b/slots');
	is($s{first}->finish, 't', 'the next one has it');
	all_disconnect();
};

subtest 'nothing but contenders, and the one that was meant' => sub {
	my $name = '_c_00000000-0000-0000-0000-000000000001-lock-0000000000';
	$shell->create("/b/other/$_", makepath => 1) foreach 'config', 'leases/config', 'lock-', 'lock-99999999999';
	fails($admin, "'/b/other', '$_'", '22023', "\"$_\" is no contender") foreach 'config', 'lock-', 'lock-99999999999', "../$name", "x/$name", '', "\x1b$name";
	fails($admin, 'NULL, NULL', '22004', 'no path');
	fails($admin, "'/b/other', NULL", '22004', 'no node');
	fails($admin, "'b', '$name'", '22023', 'a bad path');
	is($admin->query("SELECT zk_break_lock('/b/other', '$name')"), 'f', 'no such node');
	is($admin->query("SELECT zk_break_lock('/b/nothing', '$name')"), 'f', 'no such path');
	is(scalar @{ $shell->ls('/b/other') }, 4, 'all is left as it was');

	# A client may have made a node that outlives it.
	$shell->create("/b/other/$name");
	my $mark = $a->log_mark;
	my $result = $admin->try("SELECT zk_break_lock('/b/other', '$name')");
	is($result->{text}, 't', 'a node that is not ephemeral');
	like($result->{notices}[0], qr{^NOTICE:  \S+ node "/b/other/$name" was not ephemeral}, 'which the client is told');
	$a->assert_log($mark, qr{deleted node "/b/other/$name" by zk_break_lock\(\)\n.*DETAIL: .*, and not ephemeral\.}, 'as the log says');

	# The second look is that of the deletion.
	$shell->create("/b/other/$name", ephemeral => 1);
	my $held = $proxy->hold_request(op => 'exists', path => "$name\$", nth => 2);
	$admin->query_start("SELECT zk_break_lock('/b/other', '$name')");
	$proxy->fired($held);
	$shell->delete("/b/other/$name");
	$shell->create("/b/other/$name", ephemeral => 1);
	$proxy->heal;
	is($admin->finish, 'f', 'another node has come to have the name');
	ok($shell->exists("/b/other/$name"), 'it is still there');

	# What nobody of us may read, we may delete if the path lets us, and if ZooKeeper tells whose
	# it is, which 3.9.3 does not.
	$shell->set_acl("/b/other/$name", [ [ 'digest', 'me:secret', 'cdrwa' ] ]);
	my $told = eval { $shell->exists("/b/other/$name"); 1 };
	fails($admin, "'/b/other', '$name'", '42501', 'a node of which nothing is told') unless $told;
	is($admin->query("SELECT zk_break_lock('/b/other', '$name')"), 't', 'a node that we must not read') if $told;
};

subtest 'privileges' => sub {
	$admin->query("CREATE ROLE plain LOGIN; CREATE ROLE breaker LOGIN; ALTER ROLE breaker SET zklock.allowed_paths = '/b/mine'");
	$admin->query('GRANT EXECUTE ON FUNCTION zk_break_lock(text, text) TO breaker');
	hold($a, 'holder', '/b/mine');
	my $node = node('/b/mine', 'granted');
	my ($plain, $breaker) = map { $a->session(user => $_) } qw(plain breaker);
	fails($plain, "'/b/mine', '$node'", '42501', 'not for everyone');
	fails($breaker, "'/b/other', '$node'", '42501', 'a path that is not allowed');
	is($breaker->query("SELECT zk_break_lock('/b/mine', '$node')"), 't', 'who may, and the path is allowed');
	lost($a, 'holder', '/b/mine');
	$_->disconnect foreach $plain, $breaker;
	all_disconnect();
};

$admin->disconnect;
$java->stop;
Zklock::Server->assert_clean($zk, [ $a, $b ], map { "/b/$_" } qw(local remote waits java slots/leases slots/locks mine));
done_testing;
