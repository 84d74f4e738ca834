# Copyright (c) 2026, zklock contributors
#
# The node of a session vanishes without our doing: an administrator deletes it, or the whole path, or the
# ZooKeeper session is ended from outside.
#
# A holder whose node is gone has lost the lock, because the next contender gets it. It is told so, and
# its commit fails. A session that waits has lost its place, and queues again by itself; nobody is
# granted the lock before its turn, and none believes that it holds a lock that it has lost. What a transaction
# that relied on it is told at its commit is in 211_session_lost.pl and 451_commit_guard.pl.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT token node_of unlock lost one_believer clean);

my ($zk, $a, $b) = cast('a b', timeout => '20s');
my $shell = $zk->shell;

subtest 'a holder whose node is deleted has lost the lock' => sub {
	hold($a, 'holder', '/n/alone');
	my $mark  = $a->log_mark;
	my $token = token('holder', '/n/alone');
	$shell->delete('/n/alone/' . node_of($a, 'holder'));
	lost($a, 'holder', '/n/alone');
	$a->wait_log(qr{WARNING:  node "/n/alone/_c_\S+" of lock "/n/alone" was deleted by someone else}, $mark);
	pass('the log tells of it');
	hold($a, 'holder', '/n/alone');
	cmp_ok(token('holder', '/n/alone'), '>', $token, 'it can be locked again, with a higher token');
	clean($zk, [ $a, $b ], '/n/alone');
};

subtest 'a deletion is noticed after other changes of the node, too' => sub {
	hold($a, 'holder', '/n/changed');
	foreach my $i (1 .. 3)
	{
		$shell->set('/n/changed/' . node_of($a, 'holder'), "changed $i");
		is($s{holder}->query("SELECT zk_fencing_token('/n/changed') > 0"), 't', 'changed data is no loss');
	}
	# A newcomer ends the watch on the path; the node gets its own.
	queue($b, 'waiter', '/n/changed');
	$zk->wait_watched('/n/changed/' . node_of($a, 'holder'), $a->session_id, $b->session_id);
	$shell->set('/n/changed/' . node_of($a, 'holder'), 'changed again');
	$shell->delete('/n/changed/' . node_of($a, 'holder'));
	is($s{waiter}->finish, 't', 'after a change, too, the deletion is noticed by the next');
	lost($a, 'holder', '/n/changed');
	clean($zk, [ $a, $b ], '/n/changed');
};

subtest 'the lock of a deleted node goes to the next, on another server' => sub {
	hold($a, 'holder', '/n/held');
	queue($a, 'local', '/n/held');
	queue($b, 'remote', '/n/held');
	my $token = token('holder', '/n/held');
	my $node = node_of($a, 'holder');
	my $mark = $a->log_mark;
	$shell->delete("/n/held/$node");
	is($s{remote}->finish, 't', 'who waits elsewhere gets the lock of the deleted node');
	$a->wait_lock($s{holder}, 'lost', '/n/held');
	one_believer([ $a, $b ], 'remote', '/n/held');
	cmp_ok(token('remote', '/n/held'), '>', $token, 'its token is higher than that of the loser');
	lost($a, 'holder', '/n/held');
	my @nodes = $zk->wait_children('/n/held', 2);
	$a->wait_waiting($s{local}, '/n/held');
	ok($s{local}->busy, 'who waited behind the holder waits on');
	wait_until { node_of($a, 'local') eq $nodes[1] } 'the new node to be known';
	pass('with a new node in the last place');
	$a->assert_log($mark, qr/Its holder has lost the lock; waiting sessions queue again/,
		'the log says what it means');
	unlock('remote', '/n/held');
	is($s{local}->finish, 't', 'and gets the lock in its turn');
	clean($zk, [ $a, $b ], '/n/held');
};

subtest 'the lock of a deleted node goes to the next of the same server' => sub {
	hold($a, 'holder', '/n/held2');
	queue($a, 'local', '/n/held2');
	queue($a, 'local2', '/n/held2');
	my $token = token('holder', '/n/held2');
	$shell->delete('/n/held2/' . node_of($a, 'holder'));
	is($s{local}->finish, 't', 'the next session of the same server gets the lock');
	$a->wait_lock($s{holder}, 'lost', '/n/held2');
	one_believer([ $a, $b ], 'local', '/n/held2');
	cmp_ok(token('local', '/n/held2'), '>', $token, 'with a higher token');
	ok($s{local2}->busy, 'it alone');
	is($s{holder}->try("SELECT zk_lock('/n/held2', '100ms')")->{sqlstate}, '40001',
		'the loser does not get it again unnoticed');
	unlock('local', '/n/held2');
	is($s{local2}->finish, 't', 'order is kept among those who queued again');
	clean($zk, [ $a, $b ], '/n/held2');
};

subtest 'a session that gives up all its locks is told of the lost ones, and of no others' => sub {
	foreach my $all ('SELECT zk_unlock_all()', 'DISCARD ALL')
	{
		hold($a, 'holder', '/n/all');
		$s{holder}->query("SELECT zk_lock('/n/kept'), zk_lock_shared('/n/all')");
		$shell->delete("/n/all/$_") foreach $zk->children('/n/all');
		$a->wait_lock($s{holder}, 'lost', '/n/all');
		my $result = $s{holder}->try($all);
		ok($result->{ok}, "$all: lost locks are given up");
		is_deeply([ map { m{lock on ZooKeeper path "(.*)" was lost} } @{ $result->{notices} } ], ['/n/all'],
			"$all: with a warning");
		is($a->lock_count("state <> 'releasing'"), 0, "$all: nothing is held");
	}
	$s{holder}->query('BEGIN');
	is($s{holder}->query("SELECT zk_xact_lock('/n/all')"), 't', 'a lock that it does not give up');
	$shell->delete("/n/all/$_") foreach $zk->children('/n/all');
	$a->wait_lock($s{holder}, 'lost', '/n/all');
	is_deeply($s{holder}->try('SELECT zk_unlock_all()')->{notices} || [], [], 'it has nothing to say about');
	is($s{holder}->try('COMMIT')->{sqlstate}, '40001', 'but the commit has');
	clean($zk, [ $a, $b ], '/n/all', '/n/kept');
};

subtest 'a worker that sleeps for longer than its session lives tells the holders when it wakes up' => sub {
	my $c = Zklock::Server->new('c', zookeeper => $zk, conf => ["zklock.session_timeout = '1500ms'"]);
	hold($c, 'holder', '/n/asleep');
	queue($c, 'local', '/n/asleep');
	queue($b, 'remote', '/n/asleep');
	hold($c, 'releaser', '/n/asleep2');
	in_transaction($c, 'xact', '/n/asleep3');
	my $token = token('holder', '/n/asleep');
	my $worker = $c->worker_pid;
	my $id = $c->session_id;
	freeze($worker);
	is($s{remote}->finish, 't', 'a worker is stopped for too long: another server gets the lock');
	cmp_ok(token('remote', '/n/asleep'), '>', $token, 'with a higher token');
	# A worker that sleeps cannot see to it, and a session that waits for it can be cancelled.
	$s{releaser}->query_start("SELECT zk_unlock('/n/asleep2')");
	thaw($worker);
	$c->wait_lock($s{holder}, 'lost', '/n/asleep');
	pass('when it wakes up the holder is told');
	isnt($c->session_id, $id, 'there is a new session') if $c->wait_session;
	is($c->worker_pid, $worker, 'of the same worker');
	one_believer([ $a, $b ], 'remote', '/n/asleep');
	lost($c, 'holder', '/n/asleep');
	is($s{xact}->try('COMMIT')->{sqlstate}, '40001', 'a transaction under a lost lock cannot commit');
	ok($s{releaser}->result->{ok}, 'an unlock that was under way ends');
	ok($s{local}->busy, 'who waited here waits');
	unlock('remote', '/n/asleep');
	is($s{local}->finish, 't', 'and is served');
	clean($zk, [ $a, $b, $c ]);
};

# ---- one of several runs of the same server
#
# a1, foreigner, a2, foreigner, a3: three nodes of a.

sub runs($path)
{
	my @foreign;
	hold($a, 'a1', $path);
	foreach my $i (2, 3)
	{
		push @foreign, $zk->foreigner($path);
		# Who asks before a has heard of the foreigner may go before it. When it has, the
		# node before gets a watch of its own.
		$a->settle;
		$zk->wait_watched("$path/" . node_of($a, 'a' . ($i - 1)));
		queue($a, "a$i", $path);
		$zk->wait_children($path, 2 * $i - 1);
		wait_until { node_of($a, "a$i") =~ /\d{10}$/ } 'a to know its node';
	}
	my @nodes = $zk->wait_children($path, 5);
	is_deeply([ map { node_of($a, "a$_") } 1 .. 3 ], [ @nodes[ 0, 2, 4 ] ],
		'three nodes of a, with others between them');
	return @foreign;
}

subtest 'a session whose node is deleted queues again, at the end' => sub {
	hold($b, 'holder', '/n/waiter');
	queue($a, 'first', '/n/waiter');
	queue($a, 'second', '/n/waiter');
	my $node = ($zk->wait_children('/n/waiter', 2))[1];
	queue($b, 'overtaker', '/n/waiter');
	my @nodes = $zk->wait_children('/n/waiter', 3);
	wait_until { node_of($a, 'first') eq $node && node_of($a, 'second') eq $node } 'the node to be known';
	is($nodes[1], $node, 'the waiting sessions of a stand in the middle');
	my $mark = $a->log_mark;
	$shell->delete("/n/waiter/$node");
	$a->wait_log(qr{LOG:  node "/n/waiter/$node" of lock "/n/waiter" was deleted by someone else.*Waiting sessions queue again}s,
		$mark);
	pass('the log tells of a waiter\'s node');
	@nodes = $zk->wait_children('/n/waiter', 3);
	wait_until { node_of($a, 'first') eq $nodes[2] } 'the new node to be known';
	pass('they stand at the end now');
	ok($s{$_}->busy, "$_ waits") foreach qw(first second overtaker);
	unlock('holder', '/n/waiter');
	is($s{overtaker}->finish, 't', 'who came later is first');
	ok($s{$_}->busy, "$_ waits") foreach qw(first second);
	unlock('overtaker', '/n/waiter');
	is($s{first}->finish, 't', 'they follow');
	unlock('first', '/n/waiter');
	is($s{second}->finish, 't', 'in their order');
	clean($zk, [ $a, $b ], '/n/waiter');
};

subtest 'a session waits for the nearest predecessor, and for the next one when that is deleted' => sub {
	hold($b, 'holder', '/n/before');
	my $between = $zk->foreigner('/n/before');
	queue($a, 'waiter', '/n/before');
	wait_until { ($a->locks('pid = ' . $s{waiter}->pid))[0]{blocked_by_node} } 'the predecessor to be known';
	is("/n/before/" . ($a->locks('pid = ' . $s{waiter}->pid))[0]{blocked_by_node}, $between,
		'a waiter watches the nearest predecessor');
	$shell->set($between, 'changed');
	$shell->delete($between);
	my $holder = node_of($b, 'holder');
	$a->wait_value("SELECT blocked_by_node FROM zk_locks WHERE path = '/n/before'", $holder);
	ok($s{waiter}->busy, 'when it is deleted, the one before it still holds the lock');
	one_believer([ $a, $b ], 'holder', '/n/before');
	my $token = token('holder', '/n/before');
	$shell->delete("/n/before/$holder");
	is($s{waiter}->finish, 't', 'until that one is deleted as well');
	$b->wait_lock($s{holder}, 'lost', '/n/before');
	one_believer([ $a, $b ], 'waiter', '/n/before');
	cmp_ok(token('waiter', '/n/before'), '>', $token, 'the token is higher');
	clean($zk, [ $a, $b ], '/n/before');
};

subtest 'a deleted node in the middle costs its own place alone' => sub {
	my @foreign = runs('/n/middle');
	my $token = token('a1', '/n/middle');
	my $third = node_of($a, 'a3');
	my $node = node_of($a, 'a2');
	$shell->delete("/n/middle/$node");
	wait_until { (node_of($a, 'a2') || $node) ne $node } 'a new node for a2';
	$zk->wait_children('/n/middle', 5);
	is(token('a1', '/n/middle'), $token, 'the middle node deleted: the holder is undisturbed');
	is(node_of($a, 'a3'), $third, 'the last one keeps its place');
	unlock('a1', '/n/middle');
	ok($s{$_}->busy, "$_ waits") foreach qw(a2 a3);
	$shell->delete($_) foreach @foreign;
	is($s{a3}->finish, 't', 'and is next');
	ok($s{a2}->busy, 'the one that queued again waits');
	unlock('a3', '/n/middle');
	is($s{a2}->finish, 't', 'and is the last');
	clean($zk, [ $a, $b ], '/n/middle');
};

subtest 'a deleted node of the holder costs those behind it nothing' => sub {
	my @foreign = runs('/n/first');
	my %place = map { $_ => node_of($a, $_) } qw(a2 a3);
	$shell->delete('/n/first/' . node_of($a, 'a1'));
	lost($a, 'a1', '/n/first');
	is(node_of($a, $_), $place{$_}, "the holder's node deleted: $_ keeps its place") foreach qw(a2 a3);
	ok($s{$_}->busy, "$_ waits for those before it") foreach qw(a2 a3);
	$shell->delete($foreign[0]);
	is($s{a2}->finish, 't', 'a2 follows the first foreigner');
	ok($s{a3}->busy, 'a3 waits for the second');
	$shell->delete($foreign[1]);
	one_believer([ $a, $b ], 'a2', '/n/first');
	unlock('a2', '/n/first');
	is($s{a3}->finish, 't', 'and is next');
	clean($zk, [ $a, $b ], '/n/first');
};

subtest "a session whose node and then whose predecessor's node is deleted is granted the lock with a new node" => sub {
	# Who learns of both at once must not take the lock on the strength of a node that it
	# should know to be gone.
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

my $proxy = Zklock::Proxy->start($zk);
my $d = Zklock::Server->new('d', zookeeper => $proxy, conf => ["zklock.session_timeout = '20s'"]);

foreach my $variant ('all at once', 'one after the other')
{
	subtest "all nodes of a path are deleted, $variant: everybody is served in the end" => sub {
		my $path = $variant =~ /once/ ? '/n/tree/once' : '/n/tree/slow';
		hold($a, 'holder', $path);
		queue($a, 'local', $path);
		queue($b, 'remote', $path);
		queue($b, 'remote2', $path);
		my $token = token('holder', $path);
		if ($variant =~ /once/)
		{
			# Workers that are stopped see everything gone at once. The youngest node goes
			# first, so that nobody's predecessor goes before it.
			my @workers = map { $_->worker_pid } $a, $b;
			freeze(@workers);
			$shell->delete("$path/$_") foreach reverse $zk->children($path);
			$shell->delete($path);
			thaw(@workers);
		}
		else
		{
			# They may be quicker than the deletion, and in its way: once is enough.
			my ($czxid) = $shell->stat($path)->{czxid};
			wait_until {
				eval { $shell->delete('/n/tree', recursive => 1) };
				my $stat = $shell->exists($path);
				!$stat || $stat->{czxid} != $czxid;
			} 'the path to be deleted';
		}
		my @waiting = qw(local remote remote2);
		$a->wait_lock($s{holder}, 'lost', $path);
		# All are gone from ZooKeeper and have to queue again.
		while (@waiting)
		{
			my ($next) = do { my @done; wait_until { @done = grep { !$s{$_}->busy } @waiting } "$variant: somebody to get the lock"; @done };
			@waiting = grep { $_ ne $next } @waiting;
			my $server = $next =~ /remote/ ? $b : $a;
			my $result = $s{$next}->result;
			# Its predecessor's node was deleted a moment before its own: it was granted the
			# lock in between, and loses it.
			$server->settle;
			my $lost = $server->lock_count("path = '$path' AND state = 'lost' AND pid = " . $s{$next}->pid);
			if (!$result->{ok} || $lost)
			{
				is($result->{sqlstate}, $result->{ok} ? '00000' : '40001',
					"path deleted $variant: $next had the lock for a moment");
				$s{$next}->query('SELECT zk_unlock_all()');
				next;
			}
			is($result->{text}, 't', "path deleted $variant: $next gets the lock");
			$result = $s{$next}->try("SELECT zk_fencing_token('$path')");
			one_believer([ $a, $b ], $next, $path);
			my $now = $result->{text};
			cmp_ok($now, '>', $token, 'with a higher token, though sequences start again');
			$token = $now;
			unlock($next, $path);
		}
		lost($a, 'holder', $path);
		is($zk->children($path), 0, 'and nothing is left there');
		clean($zk, [ $a, $b ], $path);
	};
}

subtest 'a node that is deleted before it has been listed is replaced' => sub {
	$shell->create('/n/new', makepath => 1);
	my $fault = $proxy->hold_request(op => 'getChildren', path => '^/n/new$');
	queue($d, 'asker', '/n/new');
	$proxy->fired($fault);
	my ($born) = $zk->wait_children('/n/new', 1);
	$shell->delete("/n/new/$born");
	$proxy->heal;
	is($s{asker}->finish, 't', 'a node deleted before it was listed: the lock is granted');
	my ($alive) = $zk->wait_children('/n/new', 1);
	isnt($alive, $born, 'with another node');
	is(($d->locks("path = '/n/new' AND state = 'held'"))[0]{node}, $alive, 'which is there');
	$s{asker}->query("SELECT zk_unlock('/n/new')");
};

subtest 'a node that is deleted before its server knows of it is replaced, or the loss is told' => sub {
	# ZooKeeper has granted the lock, and taken it away.
	$shell->create('/n/newer', makepath => 1);
	wait_until { $zk->watch_count == 0 } 'earlier watches to go';
	my $fault = $proxy->hold_reply(op => 'create2', path => '^/n/newer/');
	queue($d, 'asker', '/n/newer');
	$proxy->fired($fault);
	my ($born) = $zk->wait_children('/n/newer', 1);
	# The listing follows the create: when its watch stands it has been made. (wchp would
	# show no watches on children.)
	wait_until { $zk->four_letter('mntr') =~ /^zk_watch_count\t1$/m } 'the watch of the listing';
	$shell->delete("/n/newer/$born");
	$proxy->heal;
	my $asked = $s{asker}->result;
	if ($asked->{ok} && ($d->locks("path = '/n/newer'"))[0]{node} ne $born)
	{
		is($asked->{text}, 't', 'a node deleted before we know that it exists: the lock is granted');
		is_deeply([ $zk->children('/n/newer') ], [ ($d->locks("path = '/n/newer'"))[0]{node} ], 'under another node, which is there');
		is($s{asker}->query("SELECT zk_unlock('/n/newer')"), 't', 'and was not lost');
	}
	elsif ($asked->{ok})
	{
		is($asked->{text}, 't', 'a node deleted before we know that it exists: the lock was granted');
		$d->wait_lock($s{asker}, 'lost', '/n/newer');
		is($s{asker}->try("SELECT zk_unlock('/n/newer')")->{text}, 'f', 'and is lost, which nobody keeps secret');
	}
	else
	{
		is($asked->{sqlstate}, '40001', 'a node deleted before we know that it exists: the lock was lost again');
		is($d->lock_count("state = 'lost'"), 0, 'and nothing is left to release');
	}
};

done_clean($zk, $a, $b, $d);
