# Copyright (c) 2026, zklock contributors
#
# Nodes of a semaphore are deleted by somebody else, or their ZooKeeper session ends. A session that
# has lost a permit is told so, those that wait go on waiting, and no permit is had twice.
#
# Server a talks to ZooKeeper through a proxy, b directly.

use strict;
use warnings;

use Test::More;
use Zklock::Proxy;
use Zklock::Semaphore;
use Zklock::Server;
use Zklock::Util qw(freeze thaw wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $shell = $zk->shell;
my $proxy = Zklock::Proxy->start($zk);
my @conf  = ("zklock.session_timeout = '12s'");
my $a     = Zklock::Server->new('a', zookeeper => $proxy, conf => \@conf);
my $b     = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
Zklock::Semaphore::cast($zk, $a, $b);

my $holder = $b->session(name => 'b holder');
my $next_a = $a->session(name => 'a next');
my $next_b = $b->session(name => 'b next');

my @s = map { $a->session(name => "a$_") } 1 .. 4;

$a->value('CREATE TABLE t (i int)');

subtest 'a session whose lease is deleted has lost its permit' => sub {
	new_path();
	acquire($_, 3) foreach @s[ 0, 1 ], $next_b;
	acquire($s[0], 3, '0') eq 'f' or die 'there should be none';
	my ($node) = map { $_->{node} } $a->locks('pid = ' . $s[0]->pid . " AND state = 'held'");
	my $mark = $a->log_mark;
	$shell->delete("$path/leases/$node");
	my $row = wait_row($s[0], "state = 'lost'");
	is($row->{granted}, 'f', 'a deleted lease is a lost permit');
	$a->wait_log(qr/\Q$node\E.*deleted by someone else/, $mark);
	is($a->lock_count("path = '$path' AND state = 'held'"), 1, 'others of the server hold theirs');
	is(acquire($next_a, 3, '30s'), 't', 'somebody else gets it');
	my $r = $s[0]->try("SELECT zk_semaphore_release('$path')");
	is($r->{text}, 'f', 'its release returns false');
	like("@{ $r->{notices} }", qr/WARNING:.*permit of semaphore "$path" was lost/, 'with a warning');
	is(release($s[0]), 'f', 'it has no more');
	release($_) foreach $s[1], $next_a, $next_b;
	settled(0, 'lost');
};

subtest 'of several permits the lost one is released first' => sub {
	# Of several permits the lost one goes first.
	acquire($s[0], 3) foreach 1 .. 3;
	settled(3, 'three');
	my @nodes = map { $_->{node} } $a->locks('pid = ' . $s[0]->pid . ' ORDER BY node COLLATE "C"');
	$shell->delete("$path/leases/$nodes[1]");
	wait_row($s[0], "state = 'lost'");
	is($s[0]->query("SELECT zk_semaphore_release('$path')"), 'f', 'the lost one is released first');
	is($a->lock_count('pid = ' . $s[0]->pid . " AND state = 'held'"), 2, 'two good ones are left');
	is(release($s[0]), 't', 'which can be released') foreach 1, 2;
	settled(0, 'lost of several');
};

subtest 'a transaction that has written while a permit was lost does not commit' => sub {
	# A transaction that has written while a permit was lost does not commit.
	acquire($s[0], 1);
	settled(1, 'a permit');
	$s[0]->query($_) foreach 'BEGIN', 'INSERT INTO t VALUES (1)';
	$shell->delete("$path/leases/$_") foreach leases();
	wait_row($s[0], "state = 'lost'");
	my $r = $s[0]->try('COMMIT');
	is($r->{sqlstate}, '40001', 'COMMIT fails after a permit is lost') or diag($r->{error});
	is($a->value('SELECT count(*) FROM t'), '0', 'and nothing is there');
	is($s[0]->query('BEGIN; SELECT 1; COMMIT; SELECT 2'), '2', 'one that only reads commits');
	$r = $s[0]->try('SELECT zk_unlock_all()');
	like("@{ $r->{notices} }", qr/WARNING:.*permit of semaphore "$path" was lost/, 'zk_unlock_all warns');
	is($s[0]->try('INSERT INTO t VALUES (2); DELETE FROM t')->{sqlstate}, '00000', 'released, it is no obstacle');
};

subtest 'with zklock.commit_guard = quorum the nodes of permits are looked at' => sub {
	# With zklock.commit_guard = quorum the permits' nodes are looked at.
	$s[0]->query("SET zklock.commit_guard = 'quorum'");
	acquire($s[0], 2);
	$proxy->reset_counts;
	is($s[0]->try('INSERT INTO t VALUES (1); DELETE FROM t')->{sqlstate}, '00000', 'a quorum confirms a permit');
	ok((grep { $_->[0] eq 'multi' } @{ $proxy->requests }), 'which has been asked for');
	release($s[0]);
	$s[0]->query('RESET zklock.commit_guard');
};

subtest 'with zklock.on_lock_loss a lost permit interrupts a statement, and a lost turn does not' => sub {
	# With zklock.on_lock_loss a statement is interrupted that holds a permit, not one that waits
	# for it.
	$s[0]->query("SET zklock.on_lock_loss = 'cancel'");
	acquire($s[0], 2);
	settled(1, 'a permit');
	my $blocker = $a->session;
	$blocker->query('SELECT pg_advisory_lock(1)');
	$s[0]->query_start('SELECT pg_advisory_lock(1)');
	$a->wait_value('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $s[0]->pid, 'advisory');
	$shell->delete("$path/leases/$_") foreach leases();
	my $r = $s[0]->result;
	is($r->{sqlstate}, '57014', 'a lost permit cancels a statement') or diag($r->{error});
	is($s[0]->query("SELECT zk_semaphore_release('$path')"), 'f', 'and is released');
	acquire($holder, 1);
	acquire_start($s[0], 1);
	wait_row($s[0], $has_lease);
	$shell->delete("$path/locks/$_") foreach turns();
	acquire_start($next_b, 1);
	wait_row($next_b, $has_lease);
	ok($s[0]->busy, 'a lost turn cancels nothing');
	release($holder);
	is($s[0]->finish, 't', 'who lost it gets the permit');
	release($s[0]);
	is($next_b->finish, 't', 'and then the next');
	release($next_b);
	$s[0]->query('RESET zklock.on_lock_loss');
	settled(0, 'on_lock_loss');
};

subtest 'a turn that is lost before its session knows of it costs nobody a permit' => sub {
	# A turn that is lost before its session knows that it had it.
	acquire($holder, 1);
	acquire_start($next_b, 1);
	wait_row($next_b, $has_lease);
	acquire_start($s[0], 1);
	wait_row($s[0], $has_turn);
	my $pid = $s[0]->pid;
	freeze($pid);
	$next_b->cancel;
	is($next_b->result->{sqlstate}, '57014', 'the head of the queue gives up');
	wait_row($s[0], 'blocked_by_pid IS NULL AND blocked_by_node IS NULL');
	$shell->delete("$path/locks/$_") foreach turns();
	wait_until { turns() == 0 } 'the turn to be lost';
	thaw($pid);
	wait_row($s[0], $has_lease);
	release($holder);
	is($s[0]->finish, 't', 'the next, which loses its turn at once, gets the permit');
	release($s[0]);
	settled(0, 'a turn lost early');
};

subtest 'sessions go on waiting when their nodes are deleted' => sub {
	# Nodes of those who wait: they go on waiting.
	new_path();
	acquire($holder, 1);
	acquire_start($s[0], 1);
	wait_row($s[0], $has_lease);
	acquire_start($s[1], 1);
	wait_row($s[1], $has_turn);
	acquire_start($next_b, 1);
	wait_row($next_b, $has_turn);
	my $row = wait_row($s[0], $has_lease);
	$shell->delete("$path/leases/$row->{node}");
	my $again = wait_row($s[0], "$has_lease AND node <> '$row->{node}'");
	isnt($again->{node}, $row->{node}, 'a waiting lease that is deleted is made again');
	# The turn goes to the other server then, which gets a lease behind, and nothing more.
	my ($turn) = map { (split / /)[1] } sort map { substr($_, -10) . " $_" } turns();
	$shell->delete("$path/locks/$turn");
	wait_row($next_b, $has_lease);
	wait_row($s[1], "$has_turn AND node !~ '$turn'");
	$row = wait_row($s[0], $has_lease);
	is($row->{node}, $again->{node}, 'who has a lease waits on when its turn is over');
	release($holder);
	foreach my $session ($s[0], $next_b, $s[1])
	{
		is($session->finish, 't', $session->name . ' gets the permit');
		is(acquire($next_a, 1, '0'), 'f', 'alone');
		release($session);
	}
	settled(0, 'deleted nodes');
};

subtest 'the end of the ZooKeeper session takes the permits, and those who wait queue again' => sub {
	new_path();
	acquire($_, 3) foreach $s[0], $holder;
	acquire($s[0], 3);
	settled(3, 'three permits');
	acquire_start($s[1], 3);
	wait_row($s[1], $has_lease);
	acquire_start($s[2], 3);
	wait_row($s[2], $has_turn);
	my $other = $path;
	my $second = new_path();
	acquire($holder, 1);
	acquire_start($next_b, 1);
	wait_row($next_b, $has_lease);
	acquire_start($s[3], 1);
	wait_row($s[3], $has_turn);
	$path = $other;
	$a->expire_session($zk);
	$a->wait_value(
		"SELECT count(*) FROM zk_locks WHERE pid = " . $s[0]->pid . " AND state = 'lost'", 2);
	pass('who had permits has lost them, says zk_locks');
	is($s[1]->finish, 't', 'who waited at the head gets a permit');
	is($s[2]->finish, 't', 'who waited behind, another');
	is($b->lock_count("path = '$path' AND state = 'held'"), 1, 'the other server keeps its own');
	is(acquire($next_a, 3, '0'), 'f', 'and there are no more');
	my $r = $s[0]->try("SELECT zk_semaphore_release('$path')");
	is($r->{text}, 'f', 'a lost one is released');
	$s[0]->disconnect;
	$s[0] = $a->session(name => 'a1');
	is(acquire($next_a, 3, '0'), 'f', 'which gives nobody a permit');
	release($_) foreach @s[ 1, 2 ], $holder;
	$path = $second;
	wait_row($s[3], $has_turn);
	pass('who waited behind the other server waits again');
	release($holder);
	is($next_b->finish, 't', 'which is served first');
	ok($s[3]->busy, 'and alone');
	release($next_b);
	is($s[3]->finish, 't', 'then the one that queued again');
	release($s[3]);
	settled(0, 'expiry');
};

$_->disconnect foreach @s, $holder, $next_a, $next_b;
Zklock::Server->assert_clean($zk, [ $a, $b ], used_paths());
done_testing;
