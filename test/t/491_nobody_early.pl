# Copyright (c) 2026, zklock contributors
#
# Nobody is served before its turn: for each recipe, one session holds what the other
# asks for, and that waits until it is let go. The bugs grant-early and permit-early of
# test/faults.md make this fail.

use Zklock::Test;

my ($zk, $a, $b) = cast('a b');
my $waiter = $a->session(name => 'waiter');
my $holder = $b->session(name => 'holder');

# How to ask and give back, and where the nodes are of those who ask in vain
my %exclusive = (ask => "zk_lock('/e/path')", give => "zk_unlock('/e/path')", nodes => '/e/path');
my %shared    = (ask => "zk_lock_shared('/e/path')", give => "zk_unlock_shared('/e/path')", nodes => '/e/path');
my %permit    = (
	ask   => "zk_semaphore_acquire('/e/semaphore', 1)",
	give  => "zk_semaphore_release('/e/semaphore')",
	nodes => '/e/semaphore/leases');

foreach my $case (
	[ 'a writer waits for a writer', \%exclusive, \%exclusive ],
	[ 'a writer waits for a reader', \%exclusive, \%shared ],
	[ 'a reader waits for a writer', \%shared,    \%exclusive ],
	[ 'who wants the only permit waits for it', \%permit, \%permit ])
{
	my ($name, $wanted, $held) = @$case;
	subtest $name => sub {
		is($holder->query("SELECT $held->{ask}"), 't', 'one holds');
		$waiter->query_start("SELECT $wanted->{ask}");
		# The listing that decides is sent right behind the create.
		wait_until { $zk->children($wanted->{nodes}) == 2 } 'the other to have a node';
		$a->settle;
		ok($waiter->busy, 'the other waits');
		is($holder->query("SELECT $held->{give}"), 't', 'that lets go');
		is($waiter->finish, 't', 'the other is served');
		is($waiter->query("SELECT $wanted->{give}"), 't', 'and lets go');
	};
}

$_->disconnect foreach $waiter, $holder;
Zklock::Server->assert_clean($zk, [ $a, $b ], '/e/path', '/e/semaphore/locks', '/e/semaphore/leases', '/t/barrier');
done_testing;
