# Copyright (c) 2026, zklock contributors
#
# zk_resign() moves leadership on, in each family of names; zk_await_leadership() waits for it.

use Zklock::Test;
use Zklock::Election;

my $zk   = Zklock::ZooKeeper->standalone;
my @kinds = ([ '/e/latch', 'curator_latch' ], [ '/e/support', 'zookeeper' ], [ '/e/lock', 'lock' ]);
my $elections = join ', ', map { "$_->[0]=$_->[1]" } @kinds;
my $a = Zklock::Server->new('a', zookeeper => $zk, conf => ["zklock.elections = '$elections'"]);
my $b = Zklock::Server->new('b', zookeeper => $zk, allows_streaming => 1);
my ($sa, $sb) = ($a->session, $b->session);
my $all = '(SELECT bool_and(state = %s) FROM zk_elections)';

sub all_in_state
{
	my ($server, $state) = @_;
	$server->wait_value("SELECT string_agg(DISTINCT state, ' ') FROM zk_elections", $state);
	return;
}

subtest 'a server without rivals leads again, in a new term' => sub {
	all_in_state($a, 'elected');
	foreach my $kind (@kinds)
	{
		my ($path, $names) = @$kind;
		my $term = $sa->query("SELECT zk_fencing_token('$path')");
		my ($node) = $zk->children($path);
		my $mark = $zk->mark;
		is($sa->query("SELECT zk_resign('$path')"), 't', "$names: it resigns");
		my $asked = $zk->requests($mark);
		is(($asked->{delete} // 0) + ($asked->{create2} // 0), 0, 'in one step: it is never out of the queue');
		is($sa->query("SELECT zk_is_leader('$path')"), 't', 'and leads again');
		cmp_ok($sa->query("SELECT zk_fencing_token('$path')"), '>', $term, 'in a new term');
		is(scalar $zk->children($path), 1, 'with one node');
		isnt(($zk->children($path))[0], $node, 'which is another one');
	}
};

$b->set_conf('zklock.elections' => $elections);
all_in_state($b, 'ready');

subtest 'another takes over' => sub {
	is($sb->query("SELECT zk_resign('/e/latch')"), 'f', 'a server that does not lead has nothing to give up');
	foreach my $kind (@kinds)
	{
		my ($path, $names) = @$kind;
		my $term = $sa->query("SELECT zk_fencing_token('$path')");
		$sb->query_start("SELECT zk_await_leadership('$path')");
		$b->wait_event($sb, 'lock');
		my $mark = $a->log_mark;
		is($sa->query("SELECT zk_resign('$path')"), 't', "$names: a resigns");
		is($sa->query("SELECT zk_is_leader('$path')"), 'f', 'it does not lead any more');
		is($sb->finish, 't', 'b does');
		cmp_ok($sb->query("SELECT zk_fencing_token('$path')"), '>', $term, 'in a higher term');
		$a->wait_value("SELECT state, \"position\", leader = 'b' FROM zk_elections WHERE path = '$path'", 'ready|2|t')
		  if $b->value('SHOW cluster_name') eq 'b';
		$a->assert_log($mark, qr{election "$path": candidacy is in state "offer".*election "$path": candidacy is in state "ready"}s,
			'the log has each state');
		is(scalar $zk->children($path), 2, 'each has one node');
	}
};

subtest 'a wait for leadership ends like that for a lock' => sub {
	my $path = '/e/latch';
	is($sa->query("SELECT zk_await_leadership('$path', '0')"), 'f', 'a timeout of 0 does not wait');
	is($sa->query("SELECT zk_await_leadership('$path', '200ms')"), 'f', 'a timeout passes');
	$sa->query("SET lock_timeout = '200ms'");
	is($sa->try("SELECT zk_await_leadership('$path')")->{sqlstate}, '55P03', 'so does lock_timeout');
	$sa->query('RESET lock_timeout');
	$sa->query("SET statement_timeout = '200ms'");
	is($sa->try("SELECT zk_await_leadership('$path')")->{sqlstate}, '57014', 'and statement_timeout');
	$sa->query('RESET statement_timeout');
	$sa->query_start("SELECT zk_await_leadership('$path')");
	$a->wait_event($sa, 'lock');
	is($sa->cancelled, '57014', 'it can be cancelled');
	is($sa->try("SELECT zk_await_leadership('$path', '-1s')")->{sqlstate}, '22023', 'no negative timeout');
};

subtest 'leadership is not given up while a transaction commits under it' => sub {
	my $path = '/e/latch';
	my $r = $b->session;
	$b->value('CREATE TABLE work (n int)');
	$b->set_conf(synchronous_standby_names => 'nobody');
	wait_until { $b->session->query('SHOW synchronous_standby_names') eq 'nobody' } 'the setting to be in force';
	$sb->query('BEGIN');
	is($sb->query("SELECT zk_is_leader('$path')"), 't', 'b leads');
	$sb->query('INSERT INTO work VALUES (1)');
	$sb->query_start('COMMIT');
	wait_until { $b->value('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $sb->pid) eq 'SyncRep' } 'the commit to wait';
	$r->query_start("SELECT zk_resign('$path')");
	wait_until { $b->value("SELECT zk_is_leader('$path')") eq 'f' } 'b to give up leadership';
	$a->settle;
	is($a->value("SELECT zk_is_leader('$path')"), 'f', 'nobody else leads as long as the transaction commits');
	ok($r->busy, 'zk_resign waits');
	$b->set_conf(synchronous_standby_names => '');
	is($sb->result->{ok}, 1, 'the transaction has committed');
	is($r->finish, 't', 'then leadership goes on');
	is($sa->query("SELECT zk_await_leadership('$path', '30s')"), 't', 'to the other');

	$b->value('TRUNCATE work');
};

subtest 'who resigns amidst a transaction that was told it leads cannot commit' => sub {
	my $path = '/e/support';
	$sb->query('BEGIN');
	is($sb->query("SELECT zk_await_leadership('$path', '30s')"), 't', 'b leads');
	$sb->query('INSERT INTO work VALUES (1)');
	is($b->session->query("SELECT zk_resign('$path')"), 't', 'another session has it resign');
	is($sb->try('COMMIT')->{sqlstate}, '40001', 'what was written is not committed');
	is($b->value('SELECT count(*) FROM work'), '0', 'nothing of it is left');
};

$_->set_conf('zklock.elections' => '') foreach $a, $b;

subtest 'what was asked at an election is not done at the next one, which takes its place' => sub {
	all_in_state($_, '') foreach $a, $b;
	my $mark = $a->log_mark;
	my @next = map { "/e/next$_" } 1 .. 3;
	$a->set_conf('zklock.elections' => join ', ', @next);
	$a->wait_value(q{SELECT count(*) FROM zk_elections WHERE state = 'elected'}, 3);
	# A resignation would have been taken up before this server resigned at the last of them.
	$sa->query("SELECT zk_resign('$next[2]')");
	my $log = $a->log_since($mark);
	is(scalar(() = $log =~ /has given up leadership/g), 1, 'nobody resigns who was not asked to');
	$a->set_conf('zklock.elections' => '');
};

Zklock::Server->assert_clean($zk, [ $a, $b ], map { $_->[0] } @kinds);
done_testing;
