# Copyright (c) 2026, zklock contributors
#
# Deadlocks across servers: one session gives up, wherever it is, and is told the whole cycle.

use Zklock::Test;
use Zklock::Deadlock;

my $zk   = Zklock::ZooKeeper->standalone;
my @conf = ("deadlock_timeout = '200ms'");
my ($a, $b, $c) = map { Zklock::Server->new($_, zookeeper => $zk, conf => [ @conf, "cluster_name = '$_'" ]) } qw(a b c);
my ($a1, $a2) = map { $a->session(name => $_) } qw(a1 a2);
my ($b1, $b2) = map { $b->session(name => $_) } qw(b1 b2);
my $c1  = $c->session(name => 'c1');
my $row = 'ShareLock on transaction \d+';
$_->value('CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)') foreach $a, $b;

sub zk { my ($path, $mode) = @_; return ($mode || 'Exclusive') . qq{Lock on ZooKeeper path "$path"}; }

sub lock { my ($session, $path) = @_; $session->query("SELECT zk_xact_lock('$path')"); return; }

sub waits
{
	my ($session, $path, $function) = @_;
	$session->query_start('SELECT ' . ($function || 'zk_xact_lock') . "('$path')");
	$session->server->wait_queued($session, $path);
	return;
}

sub clean
{
	$_->query('SELECT zk_unlock_all()') foreach $a1, $a2, $b1, $b2, $c1;
	return Zklock::Server->assert_clean($zk, [ $a, $b, $c ], '/d/a', '/d/b', '/d/c', '/d/t/x/y', '/d/s/leases', '/zklock-waits');
}

subtest 'two servers, two locks' => sub {
	in_transactions($a1, $b1);
	lock($a1, '/d/a');
	lock($b1, '/d/b');
	waits($a1, '/d/b');
	my $mark = $b->log_mark;
	waits($b1, '/d/a');
	is(one_victim([ $a1, $b1 ], [ $a1, zk('/d/b'), $b1, zk('/d/a') ])->name, 'b1', 'the youngest gave up');
	like($b->log_since($mark), qr/Process @{[ $b1->pid ]}: SELECT zk_xact_lock\('\/d\/a'\)/, 'the log has what it runs');
	clean();
};

subtest 'two servers, and a row of one of them' => sub {
	in_transactions($a1, $a2, $b1);
	lock($a1, '/d/a');
	$a2->query('UPDATE t SET n = 1');
	lock($b1, '/d/b');
	waits($a2, '/d/b');
	waits($b1, '/d/a');
	$a1->query_start('UPDATE t SET n = 2');
	one_victim([ $a1, $a2, $b1 ], [ $a1, $row, $a2, zk('/d/b'), $b1, zk('/d/a') ]);
	clean();
};

subtest 'three servers in a ring' => sub {
	in_transactions($a1, $b1, $c1);
	lock($a1, '/d/a');
	lock($b1, '/d/b');
	lock($c1, '/d/c');
	waits($b1, '/d/c');
	waits($c1, '/d/a');
	waits($a1, '/d/b');
	is(one_victim([ $a1, $b1, $c1 ], [ $a1, zk('/d/b'), $b1, zk('/d/c'), $c1, zk('/d/a') ])->name, 'a1', 'the youngest gave up');
	clean();
};

subtest 'two readers of two servers that upgrade' => sub {
	in_transactions($a1, $b1);
	$_->query("SELECT zk_xact_lock_shared('/d/a')") foreach $a1, $b1;
	waits($a1, '/d/a');
	waits($b1, '/d/a');
	one_victim([ $a1, $b1 ], [ $a1, zk('/d/a'), $b1, zk('/d/a') ]);
	clean();
};

subtest 'a permit: no deadlock while one holder can let go' => sub {
	in_transactions($a1, $b1, $c1);
	my $acquire = "SELECT zk_semaphore_acquire('/d/s', 2)";
	$_->query($acquire) foreach $a1, $b1;
	lock($c1, '/d/a');
	$c1->start_waiting($acquire, '/d/s');
	waits($a1, '/d/a');
	is($c->session(name => 'late')->query("SELECT zk_lock('/d/a', '2s')"), 'f', 'time passes');
	ok($_->busy, $_->name . ' waits') foreach $a1, $c1;
	waits($b1, '/d/a');
	my $permit = 'SemaphorePermit on ZooKeeper path "/d/s"';
	my $result = $b1->result;
	is($result->{sqlstate}, '40P01', 'it is one when neither can: the youngest is told');
	like($result->{detail}, cycle_regex($b1, undef, $b1, zk('/d/a'), $c1, $permit), 'of its cycle');
	$b1->query('ROLLBACK');
	ok($_->busy, $_->name . ' waits on') foreach $a1, $c1;
	$b1->query("SELECT zk_semaphore_release('/d/s')");
	is($c1->finish, 't', 'with its permit one goes on');
	$c1->query('COMMIT');
	is($a1->finish, 't', 'and the other');
	$a1->query('COMMIT');
	clean();
};

subtest 'a permit that a session of the same server has, which waits for another server' => sub {
	my $acquire = "SELECT zk_semaphore_acquire('/d/s', 1)";
	in_transactions($a1, $a2, $b1);
	$a1->query($acquire);
	lock($a2, '/d/b');
	lock($b1, '/d/a');
	$a2->query_start($acquire);
	wait_until { $a->wait_queued($a2, '/d/s')->{node} =~ /lease/ } 'it to wait for its permit';
	waits($a1, '/d/a');
	waits($b1, '/d/b');
	my $result = $b1->result;
	is($result->{sqlstate}, '40P01', 'the youngest is told');
	like($result->{detail}, cycle_regex($b1, undef, $b1, zk('/d/b'), $a2, 'SemaphorePermit on ZooKeeper path "/d/s"', $a1, zk('/d/a')), 'of the cycle');
	$b1->query('ROLLBACK');
	is($a1->finish, 't', 'one goes on');
	$a1->query('COMMIT');
	ok($a2->busy, 'the other waits on');
	$a1->query("SELECT zk_semaphore_release('/d/s')");
	is($a2->finish, 't', 'until it has the permit');
	$a2->query('COMMIT');
	clean();
};

subtest 'a tree and an array' => sub {
	in_transactions($a1, $b1);
	$a1->query("SELECT zk_xact_lock_tree('/d/t/x/y', '/d/t')");
	$b1->query("SELECT zk_xact_lock(ARRAY['/d/b', '/d/c'])");
	$a1->start_queued("SELECT zk_xact_lock(ARRAY['/d/a', '/d/c'])", '/d/c');
	waits($b1, '/d/t/x');
	one_victim([ $a1, $b1 ], [ $a1, zk('/d/c'), $b1, zk('/d/t/x') ]);
	clean();
};

done_testing();
