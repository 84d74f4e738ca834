# Copyright (c) 2026, zklock contributors
#
# The node of a session that waits is deleted, or that of its predecessor. The session has
# lost its place, and queues again by itself; nobody is granted the lock before its turn.

use strict;
use warnings;

use Test::More;
use Zklock::Cast qw(:DEFAULT token node_of unlock lost one_believer clean);
use Zklock::Server;
use Zklock::Util qw(freeze thaw wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $shell = $zk->shell;
my $a = Zklock::Server->new('a', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'"]);
my $b = Zklock::Server->new('b', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'"]);

# ---- one of several runs of the same server
#
# a1, foreigner, a2, foreigner, a3: three nodes of a.

sub runs
{
	my ($path) = @_;
	my @foreign;
	hold($a, 'a1', $path);
	foreach my $i (2, 3)
	{
		push @foreign, $zk->foreigner($path);
		# Who asks before a has heard of the foreigner may go before it. When it has, the
		# node before gets a watch of its own.
		my $node = node_of($a, 'a' . ($i - 1));
		$zk->wait_watched("$path/$node");
		queue($a, "a$i", $path);
		$zk->wait_children($path, 2 * $i - 1);
		wait_until { node_of($a, "a$i") =~ /\d{10}$/ } 'a to know its node';
	}
	my @nodes = $zk->wait_children($path, 5);
	is_deeply([ map { node_of($a, "a$_") } 1 .. 3 ], [ @nodes[ 0, 2, 4 ] ],
		'three nodes of a, with others between them');
	return @foreign;
}

subtest 'a session whose node is deleted queues again, at the end' => sub {
	hold($b, 'holder', '/n/waiter');
	queue($a, 'first', '/n/waiter');
	queue($a, 'second', '/n/waiter');
	my $node = ($zk->wait_children('/n/waiter', 2))[1];
	queue($b, 'overtaker', '/n/waiter');
	my @nodes = $zk->wait_children('/n/waiter', 3);
	wait_until { node_of($a, 'first') eq $node && node_of($a, 'second') eq $node } 'the node to be known';
	is($nodes[1], $node, 'the waiting sessions of a stand in the middle');
	my $mark = $a->log_mark;
	$shell->delete("/n/waiter/$node");
	$a->wait_log(qr{LOG:  node "/n/waiter/$node" of lock "/n/waiter" was deleted by someone else.*Waiting sessions queue again}s,
		$mark);
	pass('the log tells of a waiter\'s node');
	@nodes = $zk->wait_children('/n/waiter', 3);
	wait_until { node_of($a, 'first') eq $nodes[2] } 'the new node to be known';
	pass('they stand at the end now');
	ok($s{$_}->busy, "$_ waits") foreach qw(first second overtaker);
	unlock('holder', '/n/waiter');
	is($s{overtaker}->finish, 't', 'who came later is first');
	ok($s{$_}->busy, "$_ waits") foreach qw(first second);
	unlock('overtaker', '/n/waiter');
	is($s{first}->finish, 't', 'they follow');
	unlock('first', '/n/waiter');
	is($s{second}->finish, 't', 'in their order');
	clean($zk, [ $a, $b ], '/n/waiter');
};

subtest 'a session waits for the nearest predecessor, and for the next one when that is deleted' => sub {
	hold($b, 'holder', '/n/before');
	my $between = $zk->foreigner('/n/before');
	queue($a, 'waiter', '/n/before');
	wait_until { ($a->locks('pid = ' . $s{waiter}->pid))[0]{blocked_by_node} } 'the predecessor to be known';
	is("/n/before/" . ($a->locks('pid = ' . $s{waiter}->pid))[0]{blocked_by_node}, $between,
		'a waiter watches the nearest predecessor');
	$shell->set($between, 'changed');
	$shell->delete($between);
	my $holder = node_of($b, 'holder');
	$a->wait_value("SELECT blocked_by_node FROM zk_locks WHERE path = '/n/before'", $holder);
	ok($s{waiter}->busy, 'when it is deleted, the one before it still holds the lock');
	one_believer([ $a, $b ], 'holder', '/n/before');
	my $token = token('holder', '/n/before');
	$shell->delete("/n/before/$holder");
	is($s{waiter}->finish, 't', 'until that one is deleted as well');
	$b->wait_lock($s{holder}, 'lost', '/n/before');
	one_believer([ $a, $b ], 'waiter', '/n/before');
	cmp_ok(token('waiter', '/n/before'), '>', $token, 'the token is higher');
	clean($zk, [ $a, $b ], '/n/before');
};

subtest 'a session does not move when a node far ahead goes' => sub {
	# One that is far ahead goes: nothing changes.
	my $first = $zk->foreigner('/n/ahead');
	my $second = $zk->foreigner('/n/ahead');
	queue($a, 'waiter', '/n/ahead');
	$shell->delete($first);
	ok($s{waiter}->busy, 'a waiter does not move when one far ahead goes');
	$shell->delete($second);
	is($s{waiter}->finish, 't', 'only when the nearest has gone as well');
	clean($zk, [ $a, $b ], '/n/ahead');
};

subtest 'a deleted node in the middle costs its own place alone' => sub {
	my @foreign = runs('/n/middle');
	my $token = token('a1', '/n/middle');
	my $third = node_of($a, 'a3');
	my $node = node_of($a, 'a2');
	$shell->delete("/n/middle/$node");
	wait_until { (node_of($a, 'a2') || $node) ne $node } 'a new node for a2';
	$zk->wait_children('/n/middle', 5);
	is(token('a1', '/n/middle'), $token, 'the middle node deleted: the holder is undisturbed');
	is(node_of($a, 'a3'), $third, 'the last one keeps its place');
	unlock('a1', '/n/middle');
	ok($s{$_}->busy, "$_ waits") foreach qw(a2 a3);
	$shell->delete($_) foreach @foreign;
	is($s{a3}->finish, 't', 'and is next');
	ok($s{a2}->busy, 'the one that queued again waits');
	unlock('a3', '/n/middle');
	is($s{a2}->finish, 't', 'and is the last');
	clean($zk, [ $a, $b ], '/n/middle');
};

subtest 'a deleted node of the holder costs those behind it nothing' => sub {
	my @foreign = runs('/n/first');
	my %place = map { $_ => node_of($a, $_) } qw(a2 a3);
	$shell->delete('/n/first/' . node_of($a, 'a1'));
	lost($a, 'a1', '/n/first');
	is(node_of($a, $_), $place{$_}, "the holder's node deleted: $_ keeps its place") foreach qw(a2 a3);
	ok($s{$_}->busy, "$_ waits for those before it") foreach qw(a2 a3);
	$shell->delete($foreign[0]);
	is($s{a2}->finish, 't', 'a2 follows the first foreigner');
	ok($s{a3}->busy, 'a3 waits for the second');
	$shell->delete($foreign[1]);
	one_believer([ $a, $b ], 'a2', '/n/first');
	unlock('a2', '/n/first');
	is($s{a3}->finish, 't', 'and is next');
	clean($zk, [ $a, $b ], '/n/first');
};

subtest "a session whose node and then whose predecessor's node is deleted is granted the lock with a new node" => sub {
	# Who learns of both at once must not take the lock on the strength of a node that it
	# should know to be gone.
	$shell->create('/n/both', makepath => 1);
	my $predecessor = $zk->foreigner('/n/both');
	queue($a, 'waiter', '/n/both');
	my ($dead) = ($zk->wait_children('/n/both', 2))[1];
	$zk->wait_watched($predecessor);
	my $process = $a->worker_pid;
	freeze($process);
	$shell->delete("/n/both/$dead");
	$shell->delete($predecessor);
	thaw($process);
	my $granted = $s{waiter}->result;
	is($granted->{text}, 't', "a waiter's node and then its predecessor's: the lock is granted")
	  or diag $granted->{error};
	isnt(node_of($a, 'waiter'), $dead, 'with a new node');
	ok(!eval { $a->wait_lock($s{waiter}, 'lost', '/n/both', 0.5) }, 'so it is not lost the next moment');
	clean($zk, [ $a, $b ], '/n/both');
};

done_testing;
