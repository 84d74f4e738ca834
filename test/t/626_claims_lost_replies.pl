# Copyright (c) 2026, zklock contributors
#
# zk_claim when answers are lost, others are faster, the worker is restarted, or somebody
# deletes the node: never two who have a slot, and nobody is told a guess. What becomes of one claim at each
# call is in the table of faults, 296_faults_of_claims_and_elements.pl.

use Zklock::Test;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a');
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

subtest 'the answer to sync is lost' => sub {
	my $path = '/l/sync/job';
	$t->query(claim($path, 0));
	my $fault = $proxy->lose_reply(op => 'sync');
	is($s->query(claim($path, 1)), 't', 'the slot is claimed');
	$proxy->fired($fault);
	is($t->query(claim($path, 1)), 'f', 'by one');
	is(last_day($path), 1, 'which ZooKeeper knows');
	is($s->query(claim($path, 2)), 't', 'the next can be claimed');
};

subtest 'while the answer is lost, others claim later slots' => sub {
	$t->query(claim('/l/later', 0));
	$proxy->hold_reply_of($s, claim('/l/later', 1), op => 'setData', path => '^/l/later');
	is($t->query(claim('/l/later', $_)), 't', "slot $_ is claimed by another") foreach 2 .. 9;
	$proxy->drop;
	is($s->finish, 't', 'it is known that the first was claimed all the same');
	is(last_day('/l/later'), 9, 'and nothing is undone');
};

subtest 'more others than are remembered' => sub {
	$t->query(claim('/l/many', 0));
	$proxy->hold_reply_of($s, claim('/l/many', 1), op => 'setData', path => '^/l/many');
	$t->query(claim('/l/many', $_)) foreach 2 .. 14;
	$proxy->drop;
	undecided($s->result, 'that it cannot be known is said');
};

subtest 'the request is lost, and another claims the slot' => sub {
	$t->query(claim('/l/request', 0));
	$proxy->hold_request_of($s, claim('/l/request', 1), op => 'setData', path => '^/l/request');
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
		$proxy->hold_request_of($s, claim($path, $day), op => $op, path => "^$path\$");
		is($t->query(claim($path, 1)), 't', "$op: it has its slot");
		$proxy->heal;
		is($s->finish, $expected, $expected eq 'f' ? 'the same is refused' : 'a later one is claimed behind it');
		is(last_day($path), $day, 'in order');
	}
};

subtest 'the next worker finds more claims than are remembered' => sub {
	$t->query(claim('/l/next', 0));
	$proxy->hold_reply_of($s, claim('/l/next', 1), op => 'setData', path => '^/l/next');
	$t->query(claim('/l/next', $_)) foreach 2 .. 14;
	$a->restart_worker;
	undecided($s->result, 'it says so as well');
};

subtest 'the ZooKeeper session ends while a claim is under way' => sub {
	$t->query(claim('/l/session', 0));
	$proxy->hold_reply_of($s, claim('/l/session', 1), op => 'setData', path => '^/l/session');
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
		$proxy->hold_reply_of($s, claim($path, 1), op => 'setData', path => "^$path\$");
		$zk->shell->delete($path);
		$t->query(claim($path, $_)) foreach 1 .. 2 * $again;
		$proxy->drop;
		undecided($s->result, $again ? 'and it is made again' : 'which takes with it what was known');
	}
	$t->query(claim('/l/replaced', 0));
	$proxy->hold_request_of($s, claim('/l/replaced', 1), op => 'setData', path => '^/l/replaced');
	$zk->shell->delete('/l/replaced');
	$t->query(claim('/l/replaced', 1));
	$proxy->heal;
	undecided($s->result, 'a write that replaces a record of another node is told by it');
};

subtest 'a claim that is cancelled' => sub {
	$t->query(claim('/l/cancel', 0));
	$proxy->hold_reply_of($s, claim('/l/cancel', 1), op => 'setData', path => '^/l/cancel');
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
