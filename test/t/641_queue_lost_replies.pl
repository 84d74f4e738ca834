# Copyright (c) 2026, zklock contributors
#
# Queues, when a request or reply is lost, at each step: no element is offered twice, none
# is removed that nobody gets, and none comes twice. Where that cannot be known the error
# names the element.

use strict;
use warnings;

use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

use constant QUEUE    => '/l/queue';
use constant RECEIPTS => '/zklock-receipts';

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my $shell = $zk->shell;
my @conf  = ("zklock.session_timeout = '20s'");
my $here  = Zklock::Server->new('here', zookeeper => $proxy, conf => \@conf);
my $there = Zklock::Server->new('there', zookeeper => $zk, conf => \@conf);
my $s     = $here->session(name => 's');
my $t     = $there->session(name => 't');

my $offer  = "SELECT zk_queue_offer('@{[ QUEUE ]}', 'new')";
my $remove = "SELECT convert_from(zk_queue_remove('@{[ QUEUE ]}'), 'UTF8')";

my %append = (op => 'multi', path => '^' . QUEUE . '/qn-$');
my %delete = (op => 'multi', path => '^' . RECEIPTS);

sub fill  { $t->query("SELECT zk_queue_offer('@{[ QUEUE ]}', '$_')") foreach @_; return; }
sub names { my @names = sort $zk->children(QUEUE); return @names; }

sub rest
{
	my @rest;
	while ((my $element = $t->query($remove)) ne '') { push @rest, $element; }
	return "@rest";
}

# All that was in the queue is gone, and no receipt is left.
sub is_clean
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$proxy->clear;
	wait_until { !$zk->children(RECEIPTS) } 'no receipt';
	return is(scalar(() = names()), 0, "$name: nothing is left behind");
}

fill('first');
rest();

foreach my $lose (qw(lose_reply lose_request))
{
	subtest "an offer with $lose is there once" => sub {
		foreach my $round (1 .. 2)
		{
			my $fault = $proxy->$lose(%append);
			my $name  = $s->query($offer);
			$proxy->fired($fault);
			is_deeply([ names() ], [$name], 'its name is the one that is told');
			is(rest(), 'new', 'and its data');
		}
		is_clean($lose);
	};

	subtest "a removal with $lose returns the first element, and removes no other" => sub {
		fill(qw(one two));
		my $fault = $proxy->$lose(%delete);
		is($s->query($remove), 'one', 'the first');
		$proxy->fired($fault);
		is(rest(), 'two', 'the second is still there');
		is_clean($lose);
	};

	subtest "$lose of other requests does no harm" => sub {
		foreach my $op ([ 'getData', QUEUE ], [ 'getChildren', QUEUE ], [ 'delete', RECEIPTS ])
		{
			fill(qw(one two));
			my $fault = $proxy->$lose(op => $op->[0], path => "^$op->[1]", any => 1);
			is($s->query($remove), 'one', "$op->[0]: the first");
			$proxy->fired($fault);
			is(rest(), 'two', 'the second is still there');
			is_clean("$lose of $op->[0]");
		}
		my $fault = $proxy->$lose(op => 'exists', path => '^' . QUEUE . '$');
		$s->query($offer);
		$proxy->fired($fault);
		is(rest(), 'new', 'an offer is made once');
		is_clean("$lose of exists");
	};
}

subtest 'an offer that was taken before its name was known was made all the same' => sub {
	my $held = $proxy->hold_reply(%append);
	$s->query_start($offer);
	$proxy->fired($held);
	is($t->query($remove), 'new', 'somebody takes it');
	$proxy->drop;
	$proxy->heal;
	is($s->finish, '', 'it has no name, and there was no error');
	is(rest(), '', 'it is not made again');
	is_clean('taken');
};

subtest 'what another client removes first is not returned' => sub {
	fill(qw(one two));
	my $held = $proxy->hold_request(%delete);
	$s->query_start($remove);
	$proxy->fired($held);
	is($t->query($remove), 'one', 'the other was first');
	$proxy->heal;
	is($s->finish, 'two', 'so it gets the next');
	fill(qw(three four));
	$held = $proxy->hold_request(%delete);
	$s->query_start($remove);
	$proxy->fired($held);
	is($t->query($remove), 'three', 'likewise');
	$proxy->drop;
	$proxy->heal;
	is($s->finish, 'four', 'when the request is lost');
	is_clean('another client');
};

subtest 'a new worker goes on' => sub {
	foreach my $hold (qw(hold_reply hold_request))
	{
		fill(qw(one two));
		my $held = $proxy->$hold(%delete);
		$s->query_start($remove);
		$proxy->fired($held);
		my $pid = $here->worker_pid;
		$here->value("SELECT pg_terminate_backend($pid)");
		$here->wait_new_worker($pid);
		$proxy->heal;
		is($s->finish, 'one', "$hold: the first");
		is(rest(), 'two', 'and no other');
		$held = $proxy->$hold(%append);
		$s->query_start($offer);
		$proxy->fired($held);
		$pid = $here->worker_pid;
		$here->value("SELECT pg_terminate_backend($pid)");
		$here->wait_new_worker($pid);
		$proxy->heal;
		isnt($s->finish, '', 'an offer has a name');
		is(rest(), 'new', 'and is there once');
		is_clean($hold);
	}
};

subtest 'who cancels while it is sent is told which element may be gone' => sub {
	fill('one');
	my ($name) = names();
	my $held = $proxy->hold_reply(%delete);
	$s->query_start($remove);
	$proxy->fired($held);
	$s->cancel;
	my $result = $s->result;
	is($result->{sqlstate}, '57014', 'cancelled');
	like($result->{context}, qr/removing element "$name" of ZooKeeper queue "@{[ QUEUE ]}", which may be gone/, 'the element');
	$proxy->heal;
	is_clean('cancelled removal');

	$held = $proxy->hold_reply(%append);
	$s->query_start($offer);
	$proxy->fired($held);
	$s->cancel;
	$result = $s->result;
	like($result->{context}, qr/adding an element to ZooKeeper queue "@{[ QUEUE ]}", where it may be/, 'the offer');
	$proxy->heal;
	wait_until { rest() eq 'new' } 'it is there';
	is_clean('cancelled offer');
};

subtest 'who cancels before that has removed nothing' => sub {
	fill('one');
	my $held = $proxy->hold_reply(op => 'getData', path => '^' . QUEUE);
	$s->query_start($remove);
	$proxy->fired($held);
	$s->cancel;
	is($s->result->{sqlstate}, '57014', 'cancelled');
	$proxy->heal;
	is($s->query($remove), 'one', 'it is still there');
	is_clean('cancelled read');
};

subtest 'a session that ends meanwhile: the error names the element' => sub {
	fill('one');
	my ($name) = names();
	my $held = $proxy->hold_reply(%delete);
	$s->query_start($remove);
	$proxy->fired($held);
	$here->expire_session($zk);
	$proxy->drop;
	$proxy->heal;
	my $result = $s->result;
	is($result->{sqlstate}, '58030', 'it is not known');
	like($result->{error}, qr/whether element "$name" of ZooKeeper queue "@{[ QUEUE ]}" was removed/, 'of which element') or diag $result->{error};
	$here->wait_session;
	$held = $proxy->hold_reply(%append);
	$s->query_start($offer);
	$proxy->fired($held);
	$here->expire_session($zk);
	$proxy->drop;
	$proxy->heal;
	$result = $s->result;
	is($result->{sqlstate}, '58030', 'nor is it of an offer');
	like($result->{error}, qr/whether an element was added to ZooKeeper queue "@{[ QUEUE ]}"/, 'on which queue');
	rest();
	$here->wait_session;
	is_clean('expired');
};

Zklock::Server->assert_clean($zk, [ $here, $there ], QUEUE, RECEIPTS);
done_testing;
