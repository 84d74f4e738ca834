# Copyright (c) 2026, zklock contributors
#
# A backend fails in the middle of asking for a lock: the statement fails and leaves
# nothing behind, and what the session held before, it holds. See test/faults.md.
#
# Server a has the faults; the next session that wants the lock is on server b.

use strict;
use warnings;

use Test::More;
use Zklock::Server;
use Zklock::ZooKeeper;

plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};

my $zk = Zklock::ZooKeeper->standalone;
my $a  = Zklock::Server->new('a', zookeeper => $zk, faults => '');
my $b  = Zklock::Server->new('b', zookeeper => $zk);
my $victim = $a->session(name => 'victim');
my $other  = $a->session(name => 'other');
my $next   = $b->session(name => 'next');

# What is asked for, and what one who is excluded by it asks for and gives back
my @lock = (q{SELECT zk_lock('/f/path')}, q{SELECT zk_unlock('/f/path')});
my @recipes = (
	[ 'exclusive lock',            $lock[0], @lock ],
	[ 'exclusive lock, in time',   q{SELECT zk_lock('/f/path', '30s')}, @lock ],
	[ 'exclusive lock, no wait',   q{SELECT zk_try_lock('/f/path')}, @lock ],
	[ 'lock of a transaction',     q{SELECT zk_xact_lock('/f/path')}, @lock ],
	[ 'shared lock',               q{SELECT zk_lock_shared('/f/path')}, @lock ],
	[ 'shared, of a transaction',  q{SELECT zk_xact_lock_shared('/f/path')}, @lock ],
	[ 'several locks',             q{SELECT zk_lock(ARRAY['/f/path', '/f/another'])}, @lock ],
	[ 'tree',                      q{SELECT zk_lock_tree('/f/path', '/f')}, @lock ],
	[ 'semaphore', (q{SELECT zk_semaphore_acquire('/f/semaphore', 1)}) x 2, q{SELECT zk_semaphore_release('/f/semaphore')} ]);

# What a session has, with nodes and tokens
sub held
{
	my ($session) = @_;
	return [ map { "$_->{path} $_->{mode} $_->{scope} $_->{count} $_->{node} $_->{fencing_token}" }
		  $a->locks('pid = ' . $session->pid . ' ORDER BY path') ];
}

foreach my $fault (qw(fail-asked fail-granted))
{
	foreach my $recipe (@recipes)
	{
		my ($name, $ask, $next_ask, $next_give) = @$recipe;
		subtest "$fault, $name: the statement fails and the next one has it" => sub {
			$victim->query("SET zklock.faults = '$fault'");
			is($victim->try($ask)->{message}, "fault: $fault", 'the statement fails');
			$victim->query('RESET zklock.faults');
			$a->wait_value('SELECT count(*) FROM zk_locks', 0);
			is($next->query($next_ask), 't', 'somebody else has it');
			is($next->query($next_give), 't', 'and gives it back');
			is($victim->query($ask), 't', 'which without the fault the session can have, too');
			$victim->query('SELECT zk_unlock_all()') if $ask !~ /semaphore/;
			$victim->query($next_give) if $ask =~ /semaphore/;
		};
	}

	subtest "$fault: what the session has from before stays" => sub {
		$victim->query(q{BEGIN; SELECT zk_lock('/f/session'), zk_lock_shared('/f/path'), zk_xact_lock('/f/transaction')});
		my $had = held($victim);
		is(scalar(@$had), 3, 'it has three locks');
		foreach my $recipe (@recipes)
		{
			my ($name, $ask) = @$recipe;
			next if $ask =~ /shared/;    # has it, and is asked for nothing
			$victim->query("SAVEPOINT s; SET LOCAL zklock.faults = '$fault'");
			is($victim->try($ask)->{message}, "fault: $fault", "$name: the statement fails");
			$victim->query('ROLLBACK TO s');
			$a->wait_value('SELECT count(*) FROM zk_locks', 3);
			is_deeply(held($victim), $had, "$name: the session has what it had");
		}
		$victim->query('COMMIT; SELECT zk_unlock_all()');
	};

	subtest "$fault: who waits behind is not held up" => sub {
		is($other->query(q{SELECT zk_lock('/f/path')}), 't', 'a session of the server holds the lock');
		$victim->query("SET zklock.faults = '$fault'");
		$victim->query_start(q{SELECT zk_lock('/f/path')});
		$a->wait_queued($victim, '/f/path') if $fault eq 'fail-granted';
		$next->query_start(q{SELECT zk_lock('/f/path')});
		$b->wait_queued($next, '/f/path');
		is($other->query(q{SELECT zk_unlock('/f/path')}), 't', 'that lets go');
		is($victim->result->{message}, "fault: $fault", 'the one behind it fails');
		is($next->finish, 't', 'the next has the lock');
		$next->query(q{SELECT zk_unlock('/f/path')});
		$victim->query('RESET zklock.faults');
	};
}

$_->disconnect foreach $victim, $other, $next;
my @below = qw(another path session transaction);
Zklock::Server->assert_clean($zk, [ $a, $b ], '/f/semaphore/locks', '/f/semaphore/leases', map { "/f/$_" } @below);
is_deeply([ sort $zk->children('/f') ], [ sort @below, 'semaphore' ], 'nor for the tree');
done_testing;
