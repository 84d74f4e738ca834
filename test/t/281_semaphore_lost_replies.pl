# Copyright (c) 2026, zklock contributors
#
# Requests and replies of a semaphore get lost, of each kind, and connections break in the midst
# of a crowd: no permit is had twice, and none leaks.
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

foreach my $fate (qw(lose_reply lose_request))
{
	my @calls = (
		[ createContainer => '/locks$' ],
		[ createContainer => '/leases$' ],
		[ create2         => '/locks/' ],
		[ create2         => '/leases/' ],
		[ getChildren     => '/locks$' ],
		[ getChildren     => '/leases$' ],
		[ delete          => '/locks/' ],
		[ delete          => '/leases/' ]);
	foreach my $call (@calls)
	{
		my ($op, $where) = @$call;
		subtest "a permit is had once: $fate of $op $where" => sub {
			my $name = "$fate of $op $where";
			new_path();

			# Alone
			my $s = $a->session(name => 'a s');
			my $fault = $proxy->$fate(op => $op, path => "^$path$where");
			is(acquire($s, 1), 't', "$name: the only permit is had");
			my $has_it = sub {
				settled(1, $name);
				my ($row) = $a->locks('pid = ' . $s->pid);
				is_deeply([ leases() ], [ $row->{node} ], "$name: with one lease, which is known");
				is($shell->stat("$path/leases/$row->{node}")->{ephemeralOwner}, $a->session_id, 'and right');
				is(acquire($next_b, 1, '0'), 'f', "$name: nobody else gets it");
			};
			$has_it->();
			is(release($s), 't', "$name: it is released");
			ok($proxy->fired($fault), "$name has happened");
			is(acquire($next_b, 1, '30s'), 't', "$name: another server gets it");
			settled(1, $name);
			release($next_b);

			# With somebody before, and somebody behind. What makes the path does not come again.
			return if $op eq 'createContainer';
			acquire($holder, 1);
			$fault = $proxy->$fate(op => $op, path => "^$path$where");
			acquire_start($s, 1);
			wait_row($s, $has_lease);
			acquire_start($next_b, 1);
			wait_row($next_b, $has_turn);
			release($holder);
			is($s->finish, 't', "$name: who waits gets the permit");
			ok($next_b->busy, "$name: who comes behind does not");
			is(release($s), 't', "$name: it is released");
			is($next_b->finish, 't', "$name: then it does");
			ok($proxy->fired($fault), "$name has happened");
			settled(1, $name);
			release($next_b);
			$s->disconnect;
		};
	}
}

foreach my $fate (qw(lose_reply lose_request))
{
	subtest "the deletion of a lease is noticed without the watch that was to tell: $fate of getData" => sub {
		new_path();
		my $s = $a->session(name => 'a s');
		acquire($s, 2);
		settled(1, 'a permit');
		my $fault = $proxy->$fate(op => 'getData', path => "^$path/leases/");
		acquire($next_b, 2);
		ok($proxy->fired($fault), "$fate of getData");
		$a->wait_session;
		my ($node) = map { $_->{node} } $a->locks('pid = ' . $s->pid);
		$shell->delete("$path/leases/$node");
		is(wait_row($s, "state = 'lost'")->{granted}, 'f', "$fate of getData: a deletion is noticed nevertheless");
		is($s->query("SELECT zk_semaphore_release('$path')"), 'f', 'it was lost');
		release($next_b);
		$s->disconnect;
		settled(0, $fate);
	};
}

is($a->zk_session->{expirations}, '0', 'all in one session');

subtest 'a crowd that is cancelled, ends and loses connections never has more permits than there are' => sub {
	# Sessions that wait for a while, are cancelled or end, while connections break. Who was inside
	# notes when: after it got a permit, and before it gave it back.
	new_path();
	my $microseconds = '(extract(epoch FROM clock_timestamp()) * 1000000)::bigint';
	my @crowd = map { ($a->session(name => "a crowd $_"), $b->session(name => "b crowd $_")) } 1 .. 5;
	$_->value('CREATE TABLE inside (began bigint, ended bigint)') foreach $a, $b;
	my ($wanted, $cancelled) = (150, 0);
	for (my $round = 0; $round < $wanted; $round++)
	{
		my $session = $crowd[ $round % @crowd ];
		if ($session->{statement})
		{
			# It is given some time, not for ever.
			if ($round % 3 == 0 && $session->busy)
			{
				$session->cancel;
				$cancelled++;
			}
			my $r = $session->result;
			fail("round $round: $r->{error}") unless $r->{ok} || $r->{sqlstate} eq '57014';
		}
		if ($round % 17 == 16)
		{
			my $name = $session->name;
			$session->terminate if $round % 2;
			$session->disconnect;
			$session = $crowd[ $round % @crowd ] = $session->server->session(name => $name);
		}
		$proxy->drop if $round % 11 == 10;
		# The permit of a call that is cancelled is had until the next.
		$session->query_start("DO \$\$
			DECLARE
				began bigint;
			BEGIN
				PERFORM zk_unlock_all();
				IF zk_semaphore_acquire('$path', 3, '20s') THEN
					began := $microseconds;
					PERFORM count(*) FROM generate_series(1, 100000);
					INSERT INTO inside VALUES (began, $microseconds);
				END IF;
				PERFORM zk_unlock_all();
			END \$\$");
	}
	foreach my $session (@crowd)
	{
		is($session->result->{error}, undef, $session->name . ' comes to an end');
		$session->disconnect;
	}
	settled(0, 'all at once');
	my @events = map { my ($from, $to) = split /\|/; ("$from enter", "$to a leave") }
	  map { split /\n/, $_->value('SELECT began, ended FROM inside') } $a, $b;
	my ($now, $most) = (0, 0);
	foreach my $event (sort @events)
	{
		$now += $event =~ /enter/ ? 1 : -1;
		$most = $now if $most < $now;
	}
	cmp_ok($most, '<=', 3, "never more than three inside (at most $most, " . @events / 2 . " times, $cancelled cancelled)");
	cmp_ok(scalar @events, '>', $wanted, 'most were served');
};

$_->disconnect foreach $holder, $next_a, $next_b;
Zklock::Server->assert_clean($zk, [ $a, $b ], used_paths());
done_testing;
