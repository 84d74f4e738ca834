# Copyright (c) 2026, zklock contributors
#
# The node of a session vanishes without our doing: an administrator deletes it, or the whole path.
#
# A holder whose node is gone has lost the lock, because the next contender gets it. It is told so, and its commit
# fails. A session that waits has lost its place, and queues again by itself; nobody is granted the lock before its
# turn, and none believes that it holds a lock that it has lost. A holder or a waiter alone is in the table of faults;
# what a transaction that relied on the lock is told at its commit, in outages/session_lost.pl and lease/lease.pl; who gives
# up all locks, in the SQL contract.
#
# Server a talks to ZooKeeper through a proxy.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT token node_of unlock lost one_believer clean);

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '20s');
my $shell = $zk->shell;

subtest 'a node that is deleted costs its holder the lock, and those who wait their place' => sub {
	my $path = '/n/held';
	hold($a, 'holder', $path);
	my ($token, $node, $mark) = (token('holder', $path), node_of($a, 'holder'), $a->log_mark);
	foreach my $i (1 .. 3)
	{
		$shell->set("$path/$node", "changed $i");
		is(token('holder', $path), $token, 'changed data is no loss');
	}
	# A newcomer ends the watch on the path; the node gets its own, which is used up by another change.
	queue($a, 'first', $path);
	queue($b, 'remote', $path);
	$zk->wait_watched("$path/$node", $a->session_id, $b->session_id);
	$shell->set("$path/$node", 'changed again');
	$shell->delete("$path/$node");
	is($s{remote}->finish, 't', 'who waits elsewhere gets the lock of the deleted node');
	$a->wait_lock($s{holder}, 'lost', $path);
	one_believer([ $a, $b ], 'remote', $path);
	cmp_ok(token('remote', $path), '>', $token, 'its token is higher than that of the loser');
	lost($a, 'holder', $path);
	$a->assert_log($mark,
		qr{WARNING:  node "$path/$node" of lock "$path" was deleted by someone else.*}s
		  . qr{Its holder has lost the lock; waiting sessions queue again},
		'the log tells of it, and what it means');
	$node = ($zk->wait_children($path, 2))[1];
	wait_until { node_of($a, 'first') eq $node } 'who waited behind the holder to have a new node in the last place';

	# Now that of sessions that wait, in the middle
	queue($a, 'second', $path);
	wait_until { node_of($a, 'second') eq $node } 'the next one to share it';
	queue($b, 'overtaker', $path);
	$zk->wait_children($path, 3);
	$mark = $a->log_mark;
	$shell->delete("$path/$node");
	$a->wait_log(
		qr{LOG:  node "$path/$node" of lock "$path" was deleted by someone else.*Waiting sessions queue again}s, $mark);
	$node = ($zk->wait_children($path, 3))[2];
	wait_until { node_of($a, 'first') eq $node && node_of($a, 'second') eq $node } 'both to stand at the end';
	hand_on($path, qw(remote overtaker first second));
	clean($zk, [ $a, $b ], $path);
};

subtest "a node that another client's has replaced, under the same name, is lost" => sub {
	my $path = '/n/replaced';
	hold($a, 'holder', $path);
	my ($node, $process) = ("$path/" . node_of($a, 'holder'), $a->worker_pid);
	# The worker sees both at once: what it lists is its node's name.
	freeze($process);
	$shell->delete($node);
	$shell->create($node, ephemeral => 1);
	thaw($process);
	$a->wait_lock($s{holder}, 'lost', $path);
	lost($a, 'holder', $path);
	$a->settle;
	ok($shell->stat($node), 'which is left alone');
	$shell->delete($node);
	clean($zk, [ $a, $b ], $path);
};

subtest 'a deleted node costs its own place alone, in the middle and at the head' => sub {
	# Three nodes of a, with others between them
	my @foreign;
	hold($a, 'a1', '/n/middle');
	foreach my $i (2, 3)
	{
		push @foreign, $zk->foreigner('/n/middle');
		# Who asks before a has heard of the foreigner may go before it. When it has, the
		# node before gets a watch of its own.
		$a->settle;
		$zk->wait_watched('/n/middle/' . node_of($a, 'a' . ($i - 1)));
		on($a, "a$i")->start_queued("SELECT zk_lock('/n/middle')");
	}
	my @nodes = $zk->children('/n/middle');
	is_deeply([ map { node_of($a, "a$_") } 1 .. 3 ], [ @nodes[ 0, 2, 4 ] ], 'a1, foreigner, a2, foreigner, a3');
	my $token = token('a1', '/n/middle');
	my $third = node_of($a, 'a3');
	my $node = node_of($a, 'a2');
	$shell->delete("/n/middle/$node");
	wait_until { (node_of($a, 'a2') || $node) ne $node } 'a new node for a2';
	$zk->wait_children('/n/middle', 5);
	is(token('a1', '/n/middle'), $token, 'the middle node deleted: the holder is undisturbed');
	is(node_of($a, 'a3'), $third, 'the last one keeps its place');
	wait_until { node_of($a, 'a2') =~ /\d{10}$/ } 'the new node to be known';
	my %place = map { $_ => node_of($a, $_) } qw(a2 a3);
	$shell->delete('/n/middle/' . node_of($a, 'a1'));
	lost($a, 'a1', '/n/middle');
	is(node_of($a, $_), $place{$_}, "the holder's node deleted: $_ keeps its place") foreach qw(a2 a3);
	foreach my $foreign (@foreign)
	{
		ok($s{$_}->busy, "$_ waits for those before it") foreach qw(a2 a3);
		$shell->delete($foreign);
	}
	is($s{a3}->finish, 't', 'the last one is next');
	one_believer([ $a, $b ], 'a3', '/n/middle');
	ok($s{a2}->busy, 'the one that queued again waits');
	unlock('a3', '/n/middle');
	is($s{a2}->finish, 't', 'and is the last');
	clean($zk, [ $a, $b ], '/n/middle');
};

subtest "a session whose node and then whose predecessor's node is deleted is granted the lock with a new node" => sub {
	# Who learns of both at once must not take the lock on the strength of a node that it should know to be gone.
	$shell->create('/n/both', makepath => 1);
	my $predecessor = $zk->foreigner('/n/both');
	queue($a, 'waiter', '/n/both');
	my ($dead) = ($zk->wait_children('/n/both', 2))[1];
	$zk->wait_watched($predecessor);
	my $process = $a->worker_pid;
	freeze($process);
	$shell->delete("/n/both/$dead");
	$shell->delete($predecessor);
	thaw($process);
	my $granted = $s{waiter}->result;
	is($granted->{text}, 't', "a waiter's node and then its predecessor's: the lock is granted")
	  or diag $granted->{error};
	isnt(node_of($a, 'waiter'), $dead, 'with a new node');
	ok(!eval { $a->wait_lock($s{waiter}, 'lost', '/n/both', 0.5) }, 'so it is not lost the next moment');
	clean($zk, [ $a, $b ], '/n/both');
};

subtest 'all nodes of a path are deleted at once: everybody is served in the end' => sub {
	my $path = '/n/tree';
	hold($a, 'holder', $path);
	queue($a, 'local', $path);
	queue($b, 'remote', $path);
	queue($b, 'remote2', $path);
	my $token = token('holder', $path);
	# Workers that are stopped see everything gone at once. The youngest node goes first, so that nobody's
	# predecessor goes before it.
	my @workers = map { $_->worker_pid } $a, $b;
	freeze(@workers);
	$shell->delete("$path/$_") foreach reverse $zk->children($path);
	$shell->delete($path);
	thaw(@workers);
	$a->wait_lock($s{holder}, 'lost', $path);
	# All are gone from ZooKeeper and have to queue again.
	my @waiting = qw(local remote remote2);
	while (@waiting)
	{
		my $next;
		wait_until { ($next) = grep { !$s{$_}->busy } @waiting; $next } 'somebody to get the lock';
		@waiting = grep { $_ ne $next } @waiting;
		is($s{$next}->finish, 't', "$next gets the lock");
		my $now = token($next, $path);
		one_believer([ $a, $b ], $next, $path);
		cmp_ok($now, '>', $token, 'with a higher token, though sequences start again');
		$token = $now;
		unlock($next, $path);
	}
	lost($a, 'holder', $path);
	is($zk->children($path), 0, 'and nothing is left there');
	clean($zk, [ $a, $b ], $path);
};

# A session asks, and its node is deleted before its server knows of it: that node, and what the session is told
sub deleted_at_birth($path, $hold, @what)
{
	$shell->create($path, makepath => 1);
	wait_until { $zk->watch_count == 0 } 'earlier watches to go';
	my $fault = $proxy->$hold(@what);
	queue($a, 'asker', $path);
	$proxy->fired($fault);
	my ($born) = $zk->wait_children($path, 1);
	# The listing follows the create: when its watch stands it has been made. (wchp would
	# show no watches on children.)
	wait_until { $hold =~ /request/ || $zk->four_letter('mntr') =~ /^zk_watch_count\t1$/m } 'the watch of the listing';
	$shell->delete("$path/$born");
	$proxy->heal;
	return ($born, $s{asker}->result);
}

# It has another node, which is there, and gives that back.
sub has_another($path, $born)
{
	my ($row) = $a->locks("path = '$path' AND state = 'held'");
	isnt($row->{node}, $born, 'the lock is granted with another node');
	is_deeply([ $zk->children($path) ], [ $row->{node} ], 'which is there');
	return unlock('asker', $path);
}

subtest 'a node that is deleted before it has been listed is replaced' => sub {
	my ($born, $asked) = deleted_at_birth('/n/new', hold_request => op => 'getChildren', path => '^/n/new$');
	is($asked->{text}, 't', 'a node deleted before it was listed: the lock is granted');
	has_another('/n/new', $born);
};

subtest 'a node that is deleted before its server knows of it is replaced, or the loss is told' => sub {
	# ZooKeeper has granted the lock, and taken it away.
	my ($born, $asked) = deleted_at_birth('/n/newer', hold_reply => op => 'create2', path => '^/n/newer/');
	if (!$asked->{ok})
	{
		is($asked->{sqlstate}, '40001', 'the lock was lost again');
		is($a->lock_count("state = 'lost'"), 0, 'and nothing is left to release');
	}
	elsif (($a->locks("path = '/n/newer'"))[0]{node} eq $born)
	{
		lost($a, 'asker', '/n/newer');
	}
	else
	{
		has_another('/n/newer', $born);
	}
};

# ---- nothing is granted before the worker is sure to hear of the deletion
#
# A session whose turn comes in that moment, and whose node is gone by then, queues again; it is not given a lock that it
# has lost already. The bug watched-early of test/faults/README.md makes this fail.

hold($a, 'barrier', '/n/barrier');
on($a, 'other');

# The worker answers this by itself, after it has taken up what ZooKeeper has told it.
sub goes_on($what)
{
	is(join('', map { $s{other}->query("SELECT zk_try_lock('/n/barrier')") } 1 .. 20), 'f' x 20, "$what: the worker goes on");
	return;
}

foreach my $mode ('', '_shared')
{
	subtest "zk_lock$mode: the turn comes while the watch on the node is asked for" => sub {
		my $path = "/n/turn$mode";
		hold($b, 'holder', $path);
		my $token  = token('holder', $path);
		my $first  = node_of($b, 'holder');
		my $watch  = $proxy->hold_request(op => 'getData', path => "^$path/.*0000000001\$");
		on($a, 'waiter')->query_start("SELECT zk_lock$mode('$path')");
		$proxy->fired($watch);
		my ($own) = grep { $_ ne $first } $zk->wait_children($path, 2);
		# The watch on the path, which would tell as well, is used up.
		$shell->create("$path/other");
		goes_on('something else comes');
		$shell->delete("$path/$first");
		goes_on('the holder\'s node goes');
		ok($s{waiter}->busy, 'the session is not granted what nobody watches');
		$shell->delete("$path/$_") foreach $own, 'other';
		$proxy->heal;
		is($s{waiter}->finish, 't', 'it gets the lock');
		isnt(node_of($a, 'waiter'), $own, 'with another node');
		cmp_ok($s{waiter}->query("SELECT zk_fencing_token('$path')"), '>', $token, 'which it holds, with a higher token');
		lost($b, 'holder', $path);
		is($s{waiter}->query("SELECT zk_unlock$mode('$path')"), 't', 'until it lets go');
	};
}

unlock('barrier', '/n/barrier');
done_clean($zk, $a, $b);
