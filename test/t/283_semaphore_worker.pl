# Copyright (c) 2026, zklock contributors
#
# The worker goes and comes back: permits are kept, and so are places in the queue.
#
# Server a talks to ZooKeeper through a proxy, b directly.

use strict;
use warnings;

use Test::More;
use Zklock::Proxy;
use Zklock::Semaphore;
use Zklock::Server;
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

sub new_worker
{
	$a->restart_worker;
	$a->wait_session;
	return;
}

subtest 'a new worker keeps permits and places' => sub {
	new_path();
	acquire($_, 2) foreach $s[0], $holder;
	settled(2, 'two permits');
	acquire_start($s[1], 2);
	wait_row($s[1], $has_lease);
	acquire_start($s[2], 2);
	wait_row($s[2], $has_turn);
	acquire_start($next_b, 2);
	wait_row($next_b, $has_turn);
	my @before = (sort(turns()), sort(leases()));
	new_worker();
	is_deeply([ sort(turns()), sort(leases()) ], \@before, 'a new worker keeps all nodes');
	is(wait_row($s[0], 'true')->{state}, 'held', 'the permit is held');
	wait_row($s[1], $has_lease);
	wait_row($s[2], $has_turn);
	is(acquire($next_a, 2, '0'), 'f', 'no permit is free');
	release($s[0]);
	is($s[1]->finish, 't', 'the head of the queue gets the next');
	wait_row($s[2], $has_lease);
	ok($next_b->busy, 'the others wait');
	new_worker();
	release($holder);
	is($s[2]->finish, 't', 'the next one another');
	release($s[1]);
	is($next_b->finish, 't', 'then the other server');
	release($_) foreach $s[2], $next_b;
	settled(0, 'new workers');
};

foreach my $kind (qw(locks leases))
{
	foreach my $hold (qw(hold_request hold_reply))
	{
		subtest "a new worker finds out the outcome of a create: $hold in $kind" => sub {
			new_path();
			$shell->create("$path/$_", makepath => 1) foreach qw(locks leases);
			my $fault = $proxy->$hold(op => 'create2', path => "^$path/$kind/");
			acquire_start($s[0], 1);
			$proxy->fired($fault);
			$a->restart_worker;
			$proxy->heal;
			is($s[0]->finish, 't', "$hold of create in $kind and a new worker: a permit");
			settled(1, $hold);
			is(acquire($next_b, 1, '0'), 'f', 'one');
			release($s[0]);
			is(acquire($next_b, 1, '30s'), 't', 'released');
			release($next_b);
		};
	}
}

$_->disconnect foreach @s, $holder, $next_a, $next_b;
Zklock::Server->assert_clean($zk, [ $a, $b ], used_paths());
done_testing;
