# Copyright (c) 2026, zklock contributors
#
# The connection is cut at each message of a whole story.
#
# Session a1 holds the lock, b1 and others wait, a1 releases it, and they follow one after the
# other. Whether b1 or a2 is first depends on when a hears of b1; that it is one at a time does not.
#
# Server a talks to ZooKeeper through a proxy that loses the k-th reply or request of a
# kind, and its connection with it; b talks to ZooKeeper directly.

use strict;
use warnings;

use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(increasing wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
# Long enough to expire never, which is checked at the end; the pause between attempts to
# connect is a sixtieth of it.
my @conf = ("zklock.session_timeout = '12s'");
my $a    = Zklock::Server->new('a', zookeeper => $proxy, conf => \@conf);
my $b    = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
my $id   = $a->session_id;

my @as = map { $a->session(name => "a$_") } 1 .. 4;
my @bs = map { $b->session(name => "b$_") } 1 .. 2;

my @fates = ([ lose_reply => 'reply' ], [ lose_request => 'request' ]);

sub story
{
	my ($path, $what) = @_;
	my @trouble;
	my @token;
	$as[0]->query("SELECT zk_lock('$path')");
	push @token, $as[0]->query("SELECT zk_fencing_token('$path')");
	$bs[0]->query_start("SELECT zk_lock('$path')");
	$b->wait_waiting($bs[0]);
	$as[1]->query_start("SELECT zk_lock('$path')");
	$a->wait_waiting($as[1]);
	$as[2]->query_start("SELECT zk_lock('$path')");
	$a->wait_waiting($as[2]);
	my @waiting = ($bs[0], $as[1], $as[2]);
	push @trouble, 'a waiter was let in' if grep { !$_->busy } @waiting;
	$as[0]->query("SELECT zk_unlock('$path')");
	while (@waiting)
	{
		my ($next) = wait_until { grep { !$_->busy } @waiting } "$what: somebody to get the lock";
		($next) = grep { !$_->busy } @waiting;
		@waiting = grep { $_ != $next } @waiting;
		push @trouble, 'no lock: ' . $next->name if $next->finish ne 't';
		push @token, $next->query("SELECT zk_fencing_token('$path')");
		push @trouble, 'two at a time' if grep { !$_->busy } @waiting;
		push @trouble, 'not to be unlocked' if $next->query("SELECT zk_unlock('$path')") ne 't';
	}
	push @trouble, "tokens @token" unless increasing(@token);
	return "@trouble";
}

subtest 'the undisturbed story has an end' => sub {
	is(story('/l/story', 'undisturbed'), '', 'the undisturbed story');
	$a->assert_clean($zk, '/l/story');
};

foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
	subtest "the story has the same end with the connection lost at any $thing" => sub {
		my $step;
		for ($step = 1; $step < 60; $step++)
		{
			my $path  = "/l/story-$thing-$step";
			my $fault = $proxy->$lose(op => '*', nth => $step, any => 1);
			my $fault_list = story($path, "$thing $step");
			my $fired = $proxy->has_fired($fault);
			last unless $fired;
			is($fault_list, '', "connection lost with $thing $step, $fired->[0]");
			$a->wait_session;
			# What comes next must not meet the fault of this step's clean-up.
			Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
		}
		$proxy->clear;
		# How many there are depends on whether a2 joins a1's run or opens another.
		cmp_ok($step, '>', 4, "the story has several ${thing}s");
		cmp_ok($step, '<', 60, 'and an end');
		Zklock::Server->assert_clean($zk, [ $a, $b ], "/l/story-$thing-$step");
	};
}

is($a->session_id, $id, 'it was the same session all the time');
is($a->zk_session->{expirations}, 0, 'without an expiration');
$_->disconnect foreach @as, @bs;
Zklock::Server->assert_clean($zk, [ $a, $b ], '/l/story');
done_testing;
