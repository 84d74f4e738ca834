# Copyright (c) 2026, zklock contributors
#
# Semaphores among sessions of two servers: how many get a permit, in which order, and what
# others see.

use strict;
use warnings;

use Test::More;
use Zklock::Semaphore;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $a     = Zklock::Server->new('a', zookeeper => $zk);
my $b     = Zklock::Server->new('b', zookeeper => $zk);
my $shell = $zk->shell;
Zklock::Semaphore::cast($zk, $a, $b);
my @nodes = map { "$path/$_" } qw(locks leases);

my @as = map { $a->session(name => "a$_") } 1 .. 5;
my @bs = map { $b->session(name => "b$_") } 1 .. 3;

subtest 'as many sessions get a permit as there are, over both servers' => sub {
	is(acquire($_, 3, '30s'), 't', $_->name . ' gets a permit') foreach @as[ 0, 1 ], $bs[0];
	settled(3);
	is(acquire($_, 3, '0'), 'f', $_->name . ' gets none') foreach $as[2], $bs[1];
	is(acquire($as[2], 3, '50ms'), 'f', 'nor in a while');
	settled(3);
	is(release($as[0]), 't', 'one is released');
	is(acquire($bs[1], 3, '0'), 't', 'so that there is one to be had at once, for another server');
	is(acquire($as[0], 3, '0'), 'f', 'and no more');
};

subtest 'zk_locks and the node of a permit show whose it is' => sub {
	# What a permit looks like.
	my ($row) = $b->locks('pid = ' . $bs[1]->pid);
	is_deeply(
		[ @$row{qw(path kind mode scope state granted count fencing_token wait_start)} ],
		[ $path, 'semaphore', undef, 'session', 'held', 't', 1, undef, undef ],
		'a permit in zk_locks');
	like($row->{node}, qr/^_c_[0-9a-f-]{36}-of3-lease-\d{10}$/, 'with its node');
	is($shell->stat("$nodes[1]/$row->{node}")->{ephemeralOwner}, $b->session_id, 'which is the session\'s');
	like($shell->get("$nodes[1]/$row->{node}"), qr/"pid":${\ $bs[1]->pid}\b/, 'and says who it is');
};

subtest 'a permit goes to the session that came first' => sub {
	my @queue = ($as[2], $bs[2], $as[3], $as[0], $as[4]);
	my $row = ask($queue[0], 3, 1);
	is($row->{kind}, 'semaphore', 'a waiting session in zk_locks');
	is($row->{blocked_by_pid}, $as[1]->pid, 'is told of the one who has had its permit for the longest');
	isnt($row->{wait_start}, undef, 'and since when it waits');
	is($a->lock_count('pid = ' . $queue[0]->pid), 1, 'it has one row');
	foreach my $session (@queue[ 1 .. $#queue ])
	{
		$row = ask($session, 3, 0);
		is($row->{path}, $path, $session->name . ' queues behind');
		is($session->server->lock_count('pid = ' . $session->pid), 1, 'with one row');
	}
	is(scalar($zk->children($nodes[1])), 4, 'one lease more than permits, whoever waits');
	is(acquire($bs[1], 3, '0'), 'f', 'who does not wait gets nothing');
	is(acquire($bs[1], 3, '50ms'), 'f', 'nor who does not wait for long');

	my @holders = ($as[1], $bs[0], $bs[1]);
	while (my $next = shift @queue)
	{
		is(release(shift @holders), 't', 'a permit is released');
		is($next->finish, 't', $next->name . ' gets it');
		ok($_->busy, $_->name . ' waits') foreach @queue;
		push @holders, $next;
	}
	is(release($_), 't', $_->name . ' releases') foreach @holders;
	settled(0);
};

subtest 'a session that gives up in the queue is not waited for' => sub {
	# One who gives up in the queue is not waited for.
	is(acquire($bs[0], 1), 't', 'b1 holds the only permit');
	ask($as[0], 1, 1);
	ask($as[1], 1, 0);
	ask($bs[1], 1, 0);
	$as[0]->cancel;
	is($as[0]->result->{sqlstate}, '57014', 'the first to wait gives up');
	wait_row($as[1], "state = 'waiting' AND node ~ 'lease'");
	$as[1]->cancel;
	is($as[1]->result->{sqlstate}, '57014', 'and the next');
	wait_row($bs[1], "state = 'waiting' AND node ~ 'lease'");
	release($bs[0]);
	is($bs[1]->finish, 't', 'then the third gets the permit');
	release($bs[1]);
	settled(0);
};

subtest 'a session may hold several permits' => sub {
	is(acquire($as[0], 3), 't', "a permit for a1: $_") foreach 1 .. 3;
	is(acquire($as[0], 3, '0'), 'f', 'its own count like anybody\'s');
	is($a->lock_count('pid = ' . $as[0]->pid . " AND state = 'held'"), 3, 'each has a row');
	ask($bs[0], 3, 1);
	release($as[0]);
	is($bs[0]->finish, 't', 'one released is one for somebody else');
	$as[0]->query('SELECT zk_unlock_all()');
	settled(1);
	is(acquire($as[0], 3), 't', "a permit for a1: $_") foreach 1 .. 2;
	$as[0]->query('DISCARD ALL');
	settled(1);
	is(acquire($as[0], 3), 't', "a permit for a1: $_") foreach 1 .. 2;
	$as[0]->disconnect;
	settled(1);
	$as[0] = $a->session(name => 'a1');
	is(acquire($as[0], 3), 't', 'a permit for a1');
	$as[0]->terminate;
	settled(1);
	$as[0] = $a->session(name => 'a1');
	release($bs[0]);
};

subtest 'of sessions that do not wait, all at once, as many get a permit as there are' => sub {
	# Each sees the others come, and yet as many get a permit as there are.
	foreach my $round (1 .. 10)
	{
		$_->query_start("SELECT zk_semaphore_acquire('$path', 3, '0')") foreach @as, @bs;
		my @got = grep { $_->finish eq 't' } @as, @bs;
		is(scalar @got, 3, "round $round: of eight who do not wait three get a permit");
		$_->query('SELECT zk_unlock_all()') foreach @got;
		settled(0);
	}
};

subtest 'a deep queue of each server is served to the last' => sub {
	my %inside;
	my $most = 0;
	my @many = map { ($a->session(name => "a$_"), $b->session(name => "b$_")) } 10 .. 24;
	$_->query_start("SELECT zk_semaphore_acquire('$path', 4)") foreach @many;
	wait_until { $a->lock_count("state = 'held'") + $b->lock_count("state = 'held'") == 4 } 'four to be inside';
	wait_until { 4 == grep { !$_->busy } @many } 'four to know it';
	my $served = 0;
	while ($served < @many)
	{
		wait_until
		{
			foreach my $session (grep { $_->{statement} && !$_->busy } @many)
			{
				is($session->finish, 't', $session->name . ' is served');
				$inside{ $session->name } = $session;
			}
			%inside;
		}
		'somebody to be served';
		$most = keys %inside if $most < keys %inside;
		my ($name) = sort keys %inside;
		release(delete $inside{$name});
		$served++;
	}
	is($most, 4, 'never more than four of thirty inside');
	$_->disconnect foreach @many;
};

$_->disconnect foreach @as, @bs;
Zklock::Server->assert_clean($zk, [ $a, $b ], @nodes, '/t/barrier');
done_testing;
