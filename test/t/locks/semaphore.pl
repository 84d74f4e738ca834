# Copyright (c) 2026, zklock contributors
#
# Semaphores among sessions of two servers: how many get a permit, in which order, what
# others see, and which nodes and requests it takes. What a session has of several permits, and when these go, is in
# sql/semaphore.sql.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::Semaphore;

# What is asked and written when a wait lasts would be counted, too. A lock that is kept is no semaphore meanwhile.
my ($zk, $proxy, $a, $b) = cast('a b',
	proxied => 'a', conf => [ "deadlock_timeout = '1h'", 'zklock.keep_idle = 0' ]);
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
	my ($row) = $b->locks('pid = ' . $bs[1]->pid);
	like($row->{node}, qr/^_c_[0-9a-f-]{36}-of3-lease-\d{10}$/, 'a permit in zk_locks, with its node');
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

subtest 'of sessions that do not wait, all at once, as many get a permit as there are' => sub {
	foreach my $round (1 .. 10)
	{
		$_->query_start("SELECT zk_semaphore_acquire('$path', 3, '0')") foreach @as, @bs;
		my @got = grep { $_->finish eq 't' } @as, @bs;
		is(scalar @got, 3, "round $round: of eight who do not wait three get a permit");
		$_->query('SELECT zk_unlock_all()') foreach @got;
		settled(0);
	}
};

subtest 'who waits is told in the end that a holder counts with another number' => sub {
	acquire($as[0], 2);
	# For the permit, not for its turn: then its server has seen the holder's number.
	acquire_until($bs[0], 1, "state = 'waiting' AND blocked_by_node LIKE '%-lease-%'");
	release($as[0]);
	is($bs[0]->finish, 't', 'who waits gets the permit');
	like($bs[0]->notices, qr/one of 1 permits, a holder for one of 2;/, 'and is told');
	release($bs[0]);
	settled(0);
};

subtest 'every child of the leases counts as a permit' => sub {
	# Curator takes every child for a lease, whatever it is called.
	my $lease = $shell->create("$nodes[1]/_c_00000000-0000-0000-0000-000000000000-lease-",
		ephemeral => 1, sequence => 1);
	my $strange = $shell->create("$nodes[1]/strange", ephemeral => 1);
	is(acquire($as[0], 2, '0'), 'f', 'two children leave no room for one of two permits');
	my $row = ask($as[0], 2, 1);
	is($row->{blocked_by_node}, 'strange', 'who waits is told of the one without a number');
	$shell->delete($strange);
	is($as[0]->finish, 't', 'and gets a permit when it has gone');
	$row = ask($bs[0], 1, 1);
	is("$nodes[1]/$row->{blocked_by_node}", $lease, 'else of the oldest');
	$shell->delete($lease);
	wait_row($bs[0], "blocked_by_node ~ 'of2-lease'");
	ok($bs[0]->busy, 'who waits for all goes on until all are gone');
	release($as[0]);
	is($bs[0]->finish, 't', 'and gets the permit');
	release($bs[0]);
	settled(0);
	unlike($a->log_since(0) . $b->log_since(0), qr/ignoring child/, 'no child is ignored');
};

subtest 'a lock in the place of the leases, or of the turns, is what it is' => sub {
	is($as[0]->query("SELECT zk_lock('$nodes[1]')"), 't', 'a lock on the path of the leases');
	is(acquire($bs[0], 1, '0'), 'f', 'counts as one');
	is(acquire($bs[0], 2, '0'), 't', 'only');
	is($as[1]->query("SELECT zk_try_lock('$nodes[1]')"), 'f', 'and is exclusive');
	release($bs[0]);
	# In one server a path is one or the other.
	fails($as[2]->try("SELECT zk_semaphore_acquire('$path', 2, '30s')"), '55006', 'a permit cannot be had where this server has a lock',
		detail => qr/semaphore.*lock/);
	ok($as[0]->query("SELECT zk_unlock('$nodes[1]')"), 'unlocked');
	is(acquire($as[2], 2, '30s'), 't', 'now it can');
	is($as[1]->try("SELECT zk_lock('$nodes[1]')")->{sqlstate}, '55006', 'nor a lock where it has a permit');
	is($bs[1]->query("SELECT zk_try_lock('$nodes[1]') AND zk_unlock('$nodes[1]')"), 't', 'b2 can: leases are no obstacle');
	is($bs[1]->query("SELECT zk_lock('$nodes[1]', '30s') AND zk_unlock('$nodes[1]')"), 't', 'also if it waits');
	release($as[2]);
	acquire($bs[0], 2, '0');
	is($as[0]->query("SELECT zk_lock('$nodes[0]')"), 't', 'a lock on that of the turns');
	is(acquire($bs[1], 2, '50ms'), 'f', 'holds up those who wait');
	is(acquire($bs[1], 2, '0'), 't', 'not those who do not');
	$_->query('SELECT zk_unlock_all()') foreach $as[0], @bs[ 0, 1 ];
	settled(0);
};

my @requests;

sub begin
{
	new_path();
	@nodes = map { "$path/$_" } qw(locks leases);
	$shell->create($_, makepath => 1) foreach @nodes;
	$proxy->asked;
	return;
}

sub requests
{
	my $uuid = qr/_c_[-0-9a-f]{36}/;
	@requests = map { "$_->[0] " . $_->[1] =~ s/$uuid(-[-a-z0-9]+-)(\d{10})?$/X$1/r }
	  grep { $_->[0] !~ /^(ping|multi)$/ && ($_->[1] || '') =~ /^$path/ } @{ $proxy->requests };
	$proxy->reset_counts;
	return \@requests;
}

subtest 'a permit takes two creates, two listings and one delete, without waiting one create less' => sub {
	begin();
	acquire($as[0], 4);
	settled(1);
	is_deeply(requests(),
		[ "create2 $nodes[0]/X-lock-", "getChildren $nodes[0]", "create2 $nodes[1]/X-of4-lease-",
			"getChildren $nodes[1]", "delete $nodes[0]/X-lock-" ],
		'a permit');
	release($as[0]);
	settled(0);
	is_deeply(requests(), ["delete $nodes[1]/X-of4-lease-"], 'and its release one delete');
	is(acquire($as[0], 4, '0'), 't', 'without waiting');
	is_deeply(requests(),
		[ "getChildren $nodes[1]", "create2 $nodes[1]/X-of4-lease-", "getChildren $nodes[1]" ],
		'one create and two listings');
	is(acquire($as[1], 1, '0'), 'f', 'in vain');
	is_deeply(requests(), ["getChildren $nodes[1]"], 'one listing: no node is made');
	release($as[0]);
	settled(0);
	$proxy->asked;
};

subtest 'sessions that wait in the queue ask for nothing' => sub {
	begin();
	acquire($bs[0], 2);
	acquire($bs[1], 2);
	ask($bs[2], 2, 1);
	ask($_, 2, 0) foreach @as[ 0 .. 3 ];
	is_deeply(requests(),
		[ "create2 $nodes[0]/X-lock-", "getChildren $nodes[0]", ("getData $nodes[0]/X-lock-") x 2 ],
		'four sessions of a server queue with one node, and watch that and the one before');
	foreach (1 .. 3)
	{
		is(acquire($as[4], 99, '0'), 'f', 'somebody asks');
	}
	is_deeply($proxy->asked, { getChildren => 3 }, 'which has to be looked up');
	release($bs[0]);
	is($bs[2]->finish, 't', 'the first in the queue gets a permit');
	wait_row($as[0], "node ~ 'lease' AND blocked_by_node IS NOT NULL");
	release($bs[$_]) foreach 1, 2;
	is($as[0]->finish, 't', 'the next');
	is($as[1]->finish, 't', 'and the next');
	wait_row($as[2], "node ~ 'lease' AND blocked_by_pid IS NOT NULL");
	release($as[$_]) foreach 0, 1;
	is($_->finish, 't', 'and so on') foreach @as[ 2, 3 ];
	release($as[$_]) foreach 2, 3;
	settled(0);
};

done_clean($zk, $a, $b);
