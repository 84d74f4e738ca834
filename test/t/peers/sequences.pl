# Copyright (c) 2026, zklock contributors
#
# The end of ZooKeeper's numbers. The nodes of a path are numbered by a counter that ends at
# 2^31 - 1. From half of that on, the log warns. A million before the end, zklock refuses to
# lock the path, because clients do not agree on the order of what comes after the end. To
# delete the path's node creates a new counter.
#
# The counter is set in the data of a ZooKeeper server that is stopped, by ZooKeeper's own code.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::JavaPeer;

my $half  = 2**30;
my $limit = 2**31 - 1 - 1_000_000;

# A client that comes while a server starts may wait for most of this for an answer. Nothing
# is held meanwhile.
my ($zk, $proxy, $a, $b) = cast('a b', timeout => '10s', proxied => 'a');
my $shell = $zk->shell;
my ($s, $other, $remote) = ($a->session(name => 's'), $a->session(name => 'other'), $b->session(name => 'remote'));
my $path = '/n/lock';

# A node that is no lock keeps the path from being removed.
$shell->create("$path/keep", makepath => 1);

my $token;

sub set_counter($number)
{
	$zk->stop;
	Zklock::JavaPeer->set_counter($zk->server(1), $path, $number);
	$zk->start;
	foreach my $session ($s, $remote)
	{
		wait_until { $session->try("SELECT zk_try_lock('/n/ready')")->{ok} } 'ZooKeeper to answer again';
		$session->query('SELECT zk_unlock_all()');
	}
	$_->wait_session foreach $a, $b;
	return;
}

sub sequences { return map { /(\d{10})$/ ? $1 + 0 : () } $zk->children($path); }

sub warnings_in($mark) { my $n = () = $a->log_since($mark) =~ /WARNING:  half of the sequence/g; return $n; }

sub refused($session, $statement, $what)
{
	return fails($session->try($statement), '54000', $what,
		message => qr{"$path": its sequence numbers are used up}, hint => qr/delete its node/);
}

subtest 'from half of the sequence numbers on, the log warns once' => sub {
	set_counter($half - 1);
	my $mark = $a->log_mark;
	is($s->query("SELECT zk_lock('$path')"), 't', 'the last lock of the first half');
	is_deeply([ sequences() ], [ $half - 1 ], 'has that number');
	$token = $s->query("SELECT zk_fencing_token('$path')");
	$s->query("SELECT zk_unlock('$path')");
	is(warnings_in($mark), 0, 'of which nothing is said');
	foreach (1 .. 3)
	{
		is($s->query("SELECT zk_lock('$path')"), 't', 'a lock in the second half');
		$s->query("SELECT zk_unlock('$path')");
	}
	is(warnings_in($mark), 1, 'the log warns, once');
	$a->assert_log($mark, qr/From $limit on, zklock refuses.*HINT:  When nobody uses the path/s,
		'of what is to come, and says what to do');
};

subtest 'a million numbers before the end, nobody is served any more' => sub {
	set_counter($limit - 2);
	is($s->query("SELECT zk_lock('$path')"), 't', 'the last but one');
	$remote->start_waiting("SELECT zk_lock('$path')");
	wait_until { sequences() == 2 } 'the last';
	is_deeply([ sequences() ], [ $limit - 2, $limit - 1 ], 'they have these numbers');
	# A foreign client goes on: its node makes who comes behind it need one as well.
	my $foreign = $zk->foreigner($path);
	wait_until {
		my $result = $other->try("SELECT zk_lock('$path', '100ms')");
		$result->{ok} ? 0 : $result->{sqlstate} eq '54000';
	} 'a newcomer to be refused';
	refused($other, "SELECT zk_lock('$path')", 'beyond the limit nobody is served');
	refused($other, "SELECT zk_xact_lock('$path', '1s')", 'at any level');
	wait_until { sequences() == 3 } 'their nodes to be gone';
	ok($remote->busy, 'who was there before waits');
	is($s->query("SELECT zk_fencing_token('$path') > $token"), 't', 'and holds');
	is($s->query("SELECT zk_unlock('$path')"), 't', 'unlocked');
	is($remote->finish, 't', 'the last is served');
	is($remote->query("SELECT zk_unlock('$path')"), 't', 'unlocked');
	is($s->query("SELECT zk_try_lock('$path')"), 'f', 'the foreigner is respected all the same');
	$shell->delete($foreign);
	refused($s, "SELECT zk_try_lock('$path')", 'who does not wait is refused too');
	foreach my $dialect (qw(kazoo zookeeper hive curator))
	{
		$a->write_dialect($dialect, $s);
		refused($s, "SELECT zk_lock('$path')", "in dialect $dialect");
	}
	wait_until { !sequences() } 'their nodes to be gone';
};

subtest 'a worker deletes the node of who was refused before it began' => sub {
	my $worker = $a->worker_pid;
	my $held   = $proxy->hold_request(op => 'delete', path => "^$path/");
	freeze($worker);
	$other->query_start("SELECT zk_lock('$path')");
	$a->wait_lock($other, 'requested');
	freeze($other->pid);
	thaw($worker);
	$proxy->fired($held);
	$a->wait_lock($other, 'failed');
	is(scalar(sequences()), 1, 'the node is there, and its session has not heard that it is refused');
	# The deletion goes with the connection.
	$a->restart_worker;
	$proxy->drop;
	$proxy->heal;
	$a->wait_session;
	wait_until { !sequences() } 'the node to be gone';
	thaw($other->pid);
	fails($other->result, '54000', 'then it does');
};

subtest 'a number that ZooKeeper gives for ever is no lock' => sub {
	set_counter(2**31 - 1);
	my @last = map { eval { $shell->create("$path/lock-", ephemeral => 1, sequence => 1) } } 1 .. 3;
	is_deeply(\@last, ["$path/lock-2147483647"], 'here the numbers of this ZooKeeper end: it makes no other');
	is($s->query("SELECT zk_try_lock('$path')"), 'f', 'the last node is respected');
	$a->write_dialect('hive', $s);
	refused($s, "SELECT zk_lock('$path', '10s')", 'a number that is given for ever is no lock of ours');
	# There is one such node of each name at most: ours would be the second of this one.
	$shell->delete($last[0]);
	wait_until { !sequences() } 'our node to be gone';
	$last[0] = $shell->create("$path/LOCK-EXCLUSIVE-2147483647", ephemeral => 1);
	refused($s, "SELECT zk_lock('$path', '10s')", 'nor is one that ZooKeeper cannot give');
	is_deeply([ sequences() ], [2147483647], 'the node of somebody else is left alone');
	$shell->delete($last[0]);
	$a->write_dialect('curator', $s);
};

subtest 'a path that was deleted begins anew' => sub {
	$shell->delete($path, recursive => 1);
	is($s->query("SELECT zk_lock('$path')"), 't', 'the path\'s node deleted, it can be locked again');
	is_deeply([ sequences() ], [0], 'from the first number');
	is($s->query("SELECT zk_fencing_token('$path') > $token"), 't', 'with a token that is higher than those before');
	$s->query("SELECT zk_unlock('$path')");
};

done_clean($zk, $a, $b);
