# Copyright (c) 2026, zklock contributors
#
# zk_claim when answers are lost, others are faster, the worker is restarted, or somebody
# deletes the node: never two who have a slot, and nobody is told a guess.

use strict;
use warnings;
use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my $a = Zklock::Server->new('a', zookeeper => $proxy->connect_string);
my $b = Zklock::Server->new('b', zookeeper => $zk);
my $s = $a->session;
my $t = $b->session;

# Slots are days; each path begins with one.
sub claim { my ($path, $day) = @_; return "SELECT zk_claim('$path', date '2026-01-01' + $day)"; }
sub last_day { my ($path) = @_; return $t->query("SELECT slot::date - date '2026-01-01' FROM zk_last_claim('$path')"); }

my $undecided = qr/could not find out whether slot 2026-01-\d\dT00:00:00Z of ZooKeeper path/;

sub undecided
{
	my ($result, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{sqlstate}, '58030', $name) or diag explain $result;
	like($result->{error}, $undecided, 'by an error that names the slot');
	return;
}

foreach my $op (qw(sync exists getData setData create2 createContainer))
{
	my $path = "/l/$op/job";
	subtest "the answer to $op is lost" => sub {
		$t->query(claim($path, 0)) unless $op =~ /create/;
		my $fault = $proxy->lose_reply(op => $op, ($op eq 'sync' ? () : (path => "^/l/$op")));
		is($s->query(claim($path, 1)), 't', 'the slot is claimed');
		$proxy->fired($fault);
		is($t->query(claim($path, 1)), 'f', 'by one');
		is(last_day($path), 1, 'which ZooKeeper knows');
		is($s->query(claim($path, 2)), 't', 'the next can be claimed');
	};
}

subtest 'while the answer is lost, others claim later slots' => sub {
	$t->query(claim('/l/later', 0));
	my $fault = $proxy->hold_reply(op => 'setData', path => '^/l/later');
	$s->query_start(claim('/l/later', 1));
	$proxy->fired($fault);
	is($t->query(claim('/l/later', $_)), 't', "slot $_ is claimed by another") foreach 2 .. 9;
	$proxy->drop;
	is($s->finish, 't', 'it is known that the first was claimed all the same');
	is(last_day('/l/later'), 9, 'and nothing is undone');
};

subtest 'more others than are remembered' => sub {
	$t->query(claim('/l/many', 0));
	my $fault = $proxy->hold_reply(op => 'setData', path => '^/l/many');
	$s->query_start(claim('/l/many', 1));
	$proxy->fired($fault);
	$t->query(claim('/l/many', $_)) foreach 2 .. 14;
	$proxy->drop;
	undecided($s->result, 'that it cannot be known is said');
};

subtest 'the request is lost, and another claims the slot' => sub {
	$t->query(claim('/l/request', 0));
	my $fault = $proxy->hold_request(op => 'setData', path => '^/l/request');
	$s->query_start(claim('/l/request', 1));
	$proxy->fired($fault);
	is($t->query(claim('/l/request', 1)), 't', 'the other has it');
	$proxy->drop;
	is($s->finish, 'f', 'the first has not');
};

subtest 'another is faster' => sub {
	foreach my $case ([ setData => 'f', 1 ], [ setData => 't', 2 ], [ create2 => 'f', 1 ], [ create2 => 't', 2 ])
	{
		my ($op, $expected, $day) = @$case;
		my $path = "/l/faster-$op-$day";
		$t->query(claim($path, 0)) if $op eq 'setData';
		my $fault = $proxy->hold_request(op => $op, path => "^$path\$");
		$s->query_start(claim($path, $day));
		$proxy->fired($fault);
		is($t->query(claim($path, 1)), 't', "$op: it has its slot");
		$proxy->heal;
		is($s->finish, $expected, $expected eq 'f' ? 'the same is refused' : 'a later one is claimed behind it');
		is(last_day($path), $day, 'in order');
	}
};

subtest 'the worker is restarted while a claim is under way' => sub {
	foreach my $what (qw(request reply))
	{
		my $path = "/l/worker-$what";
		$t->query(claim($path, 0));
		my $hold = "hold_$what";
		my $fault = $proxy->$hold(op => 'setData', path => "^$path\$");
		$s->query_start(claim($path, 1));
		$proxy->fired($fault);
		$a->restart_worker;
		is($s->finish, 't', "the $what does not arrive: the next worker settles it");
		is($t->query(claim($path, 1)), 'f', 'once');
	}
};

subtest 'the next worker finds more claims than are remembered' => sub {
	$t->query(claim('/l/next', 0));
	my $fault = $proxy->hold_reply(op => 'setData', path => '^/l/next');
	$s->query_start(claim('/l/next', 1));
	$proxy->fired($fault);
	$t->query(claim('/l/next', $_)) foreach 2 .. 14;
	$a->restart_worker;
	undecided($s->result, 'it says so as well');
};

subtest 'the ZooKeeper session ends while a claim is under way' => sub {
	$t->query(claim('/l/session', 0));
	my $fault = $proxy->hold_reply(op => 'setData', path => '^/l/session');
	$s->query_start(claim('/l/session', 1));
	$proxy->fired($fault);
	$a->expire_session($zk);
	$proxy->drop;
	is($s->finish, 't', 'the next one settles it');
	is($t->query(claim('/l/session', 1)), 'f', 'once');
};

subtest 'somebody deletes the node' => sub {
	foreach my $again (0, 1)
	{
		my $path = "/l/deleted$again";
		$t->query(claim($path, 0));
		my $fault = $proxy->hold_reply(op => 'setData', path => "^$path\$");
		$s->query_start(claim($path, 1));
		$proxy->fired($fault);
		$zk->shell->delete($path);
		$t->query(claim($path, $_)) foreach 1 .. 2 * $again;
		$proxy->drop;
		undecided($s->result, $again ? 'and it is made again' : 'which takes with it what was known');
	}
	$t->query(claim('/l/replaced', 0));
	my $fault = $proxy->hold_request(op => 'setData', path => '^/l/replaced');
	$s->query_start(claim('/l/replaced', 1));
	$proxy->fired($fault);
	$zk->shell->delete('/l/replaced');
	$t->query(claim('/l/replaced', 1));
	$proxy->heal;
	undecided($s->result, 'a write that replaces a record of another node is told by it');
};

subtest 'a claim that is cancelled' => sub {
	$t->query(claim('/l/cancel', 0));
	my $fault = $proxy->hold_reply(op => 'setData', path => '^/l/cancel');
	$s->query_start(claim('/l/cancel', 1));
	$proxy->fired($fault);
	$s->cancel;
	my $result = $s->result;
	is($result->{sqlstate}, '57014', 'ends at once');
	like($result->{context}, qr/while claiming slot 2026-01-02T00:00:00Z of ZooKeeper path "\/l\/cancel", which may have been done/,
		'and says that nobody knows');
	$proxy->heal;
	is($s->query(claim('/l/cancel', 1)), 'f', 'at most once');
	is($s->query(claim('/l/cancel', 2)), 't', 'the next can be claimed');
};

subtest 'a reset whose answer is lost' => sub {
	$s->query(claim('/l/reset', 5));
	my $mark  = $a->log_mark;
	my $fault = $proxy->lose_reply(op => 'setData', path => '^/l/reset');
	is($s->query("SELECT zk_claim_reset('/l/reset')"), 't', 'is done');
	$a->assert_log($mark, qr/claims on ZooKeeper path "\/l\/reset" were reset\n.*The last slot was 2026-01-06T00:00:00Z/, 'and logged');
	is($s->query(claim('/l/reset', 1)), 't', 'once');
};

$_->disconnect foreach $s, $t;
Zklock::Server->assert_clean($zk, [ $a, $b ], '/l/later', '/l/many', '/l/reset');
done_testing;
