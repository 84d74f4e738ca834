# Copyright (c) 2026, zklock contributors
#
# Several paths that are free are taken together. From the first that is not, one waits for
# each in the order that is everybody's, and has nothing of what comes behind it meanwhile: the latter is in
# locks/multi.pl. What calls that are cut short leave behind, and what becomes of others, is in the table of faults,
# faults/faults_of_several_locks.pl.
#
# Server a talks to ZooKeeper through a proxy that holds replies back, and b directly.

use Zklock::Test;

# What is given back is not kept.
my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '20s',
	conf => [ "zklock.parent_nodes = 'persistent'", 'zklock.keep_idle = 0' ]);
# Deletions wait for each other only where answers are quick.
$proxy->delay(10);
my ($s, $t) = map { $a->session(name => $_) } qw(s t);
my $other = $b->session(name => 'other');
my @paths = map { sprintf '/tog/%02d', $_ } 1 .. 20;
my $all   = "ARRAY['" . join("', '", @paths) . "']";

# The nodes that there are below all paths.
sub nodes { return map { $zk->children($_) } @paths; }

is($s->query("SELECT zk_lock($all) AND zk_unlock($all)"), 't', 'the paths exist');
# Beside those that were just created one is taken to be missing, until that is wrong.
$s->query("SELECT zk_lock('$paths[-1]') AND zk_unlock('$paths[-1]')");

subtest 'free paths are asked for, and given back, before the first answer' => sub {
	$proxy->hold_reply_of($s, "SELECT zk_lock($all)", op => 'create2');
	wait_until { nodes() == @paths } 'the nodes of all paths';
	ok($s->busy, 'all nodes exist, and no answer has come');
	$proxy->heal;
	is($s->finish, 't', 'all are acquired');
	is($a->lock_count("state = 'held' AND pid = " . $s->pid), 20, 'and held');
	# A watch may tell before the answer that a node is gone: that is held back as well.
	$proxy->blackhole('replies');
	$s->query_start("SELECT zk_unlock($all)");
	wait_until { nodes() == 0 } 'all nodes to go';
	ok($s->busy, 'all nodes are gone, and no answer has come');
	$proxy->heal;
	is($s->finish, 't', 'all are released');
	$proxy->delay(0);

	is($s->query("SELECT zk_lock_shared($all)"), 't', 'a session shares them all');
	is($t->query("SELECT zk_lock_shared($all)"), 't', 'and another');
	is($t->query("SELECT zk_lock($all, '0')"), 'f', 'that cannot have them for itself');
	is($a->lock_count('pid = ' . $t->pid . " AND mode = 'exclusive' AND state <> 'releasing'"), 0, 'none of them');
	$_->query('SELECT zk_unlock_all()') foreach $s, $t;
};

subtest 'what is given back has been given back when a path is waited for' => sub {
	# The session may have as many locks as there are paths: none of them twice at a time. Of so many
	# a worker sends all requests at once however slow the answers are.
	my @few = @paths[0 .. 11];
	my $few = join(', ', map { "'$_'" } @few);
	my $limited = $a->session(name => 'limited');
	$limited->query('SET zklock.max_locks_per_session = ' . @few);
	$other->query("SELECT zk_lock('$paths[0]')");
	# The request that is held is none that goes before.
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	# All nodes are there before the call knows that it must wait.
	$proxy->reset_counts;
	$proxy->hold_reply_of($limited, "SELECT zk_lock(ARRAY[$few])", op => 'getChildren', path => "^$paths[0]\$");
	wait_until { ($proxy->counts->{create2} // 0) == @few } 'a node on each path';
	my $fault = $proxy->hold_request(op => 'delete');
	$proxy->heal;
	$proxy->fired($fault);
	$a->wait_value("SELECT count(*) FROM zk_locks WHERE state = 'releasing' AND pid = " . $limited->pid, scalar @few);
	ok($limited->busy, 'while ZooKeeper has not confirmed that, the call goes on waiting');
	$proxy->heal;
	$a->wait_waiting($limited, $paths[0]);
	$other->query("SELECT zk_unlock('$paths[0]')");
	is($limited->finish, 't', 'and gets all');
	$limited->query("SELECT zk_unlock(ARRAY[$few])");

	# Neither that wait nor that for the answers is longer than the call's.
	$other->query("SELECT zk_lock('$paths[0]')");
	foreach my $op (qw(create2 delete))
	{
		$fault = $proxy->hold_reply(op => $op);
		is($s->query("SELECT zk_lock($all, '300ms')"), 'f', "a timeout ends a wait for an answer to $op");
		$proxy->fired($fault);
		is($t->try("SET lock_timeout = '300ms'; SELECT zk_lock($all)")->{sqlstate}, '55P03', 'and so does lock_timeout');
		$t->query('RESET lock_timeout');
		$proxy->heal;
		$a->wait_value('SELECT count(*) FROM zk_locks', 0);
	}
	$other->query("SELECT zk_unlock('$paths[0]')");
	$limited->disconnect;
};

subtest 'a path below another one of them is not asked for before that is held' => sub {
	# Only who holds a lock may have such a node created below it.
	is($s->query("SELECT zk_lock(ARRAY['/tog/x', '/tog/x/0part', '/tog/y'])"), 't', 'path and part');
	$s->query('SELECT zk_unlock_all()');
	$other->query("SELECT zk_lock('/tog/z')");
	$s->query_start("SELECT zk_lock(ARRAY['/tog/z', '/tog/z/part'])");
	$a->wait_waiting($s, '/tog/z');
	is_deeply([ grep { $_ eq 'part' } $zk->children('/tog/z') ], [], 'nothing is created below a path that another holds');
	$other->query("SELECT zk_unlock('/tog/z')");
	is($s->finish, 't', 'then it is');
	$s->query('SELECT zk_unlock_all()');
};

subtest 'when much is taken, little is asked for in vain' => sub {
	# Of 20 paths every other one is taken, and they come free one after the other.
	my @taken = @paths[ map { 2 * $_ + 1 } 0 .. 9 ];
	$other->query("SELECT zk_lock('$_')") foreach @taken;
	$proxy->asked;
	$s->query_start("SELECT zk_lock($all)");
	foreach my $path (@taken)
	{
		wait_until { grep { $_->{path} eq $path && $_->{state} eq 'waiting' && ($_->{blocked_by_node} // '') ne '' }
			$a->locks('pid = ' . $s->pid) } "$path to be waited for";
		$other->query("SELECT zk_unlock('$path')");
	}
	is($s->finish, 't', 'all are acquired');
	my $creates = $proxy->asked->{create2};
	cmp_ok($creates, '<=', 4 * @paths, 'with no more than four nodes for each path') or diag($creates);
	$s->query("SELECT zk_unlock($all)");
};

done_clean($zk, $a, $b);
