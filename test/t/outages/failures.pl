# Copyright (c) 2026, zklock contributors
#
# The worker fails in the middle of its work. The next worker goes on, and nobody notices.
#
# An error ends the worker, whatever it was doing: it has taken up what backends ask for, or
# what ZooKeeper has answered, and has done nothing about it. All that it knew is gone, but
# for what is in shared memory. At its exit it writes once more what zk_session shows, also if it failed while
# it wrote that.
#
# A process is stopped while it has something that others need: these can be cancelled, and the worker does not wait.
#
# A backend fails in the middle of asking for a lock: the statement fails and leaves
# nothing behind, and what the session held before, it holds. See test/faults/README.md.
#
# Server a has the faults; rivals for the same paths are on server b. The table of faults, faults/faults_of_locks.pl and
# those that follow it, has every recipe's worker end before it hears of an answer: downgrades, elements, claims.

use Zklock::Test;
use PostgreSQL::Test::Utils qw(slurp_file);
use Zklock::Cast qw(:DEFAULT token);

plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};

my ($zk, $a, $b) = cast('a b', timeout => '20s', a => { faults => '' });
my $id    = $a->session_id;
my $paths = 0;
my @folders;    # of all paths

# How a recipe is asked for on a path and given back, how a rival that it excludes does, if otherwise, and below
# which nodes all of them have theirs
my %on_path = (
	exclusive => sub ($path) {
		return (ask => "SELECT zk_lock('$path')", give => "SELECT zk_unlock('$path')", nodes => [$path]);
	},
	shared => sub ($path) {
		return (ask => "SELECT zk_lock_shared('$path')", give => "SELECT zk_unlock_shared('$path')", nodes => [$path],
			rival_ask => "SELECT zk_lock('$path')", rival_give => "SELECT zk_unlock('$path')");
	},
	semaphore => sub ($path) {
		return (ask => "SELECT zk_semaphore_acquire('$path', 1)", give => "SELECT zk_semaphore_release('$path')",
			nodes => [ "$path/locks", "$path/leases" ]);
	});
my @recipes = sort keys %on_path;

# A subtest about a recipe, on a path of its own, with a session that holds or asks on this server, another one, and
# a rival elsewhere
sub with_recipe($recipe, $name, $code)
{
	return subtest "$recipe: $name" => sub {
		my %own = $on_path{$recipe}->('/f/' . ++$paths);
		my %is  = (rival_ask => $own{ask}, rival_give => $own{give}, %own);
		$zk->shell->create($_, makepath => 1) foreach @{ $is{nodes} };
		push @folders, @{ $is{nodes} };
		$code->(\%is, (map { $a->session(name => $_) } qw(holder waiter)), $b->session(name => 'rival'));
		session_lives();
	};
}

# What a session has, with nodes and tokens
sub holds($session)
{
	return [ map { "$_->{state} $_->{path} $_->{mode} $_->{scope} $_->{count} $_->{node} $_->{fencing_token}" }
		  $a->locks('pid = ' . $session->pid . ' ORDER BY path') ];
}

sub failures($mark, $text) { return scalar(() = $a->log_since($mark) =~ /worker ERROR:  \Q$text\E/g); }

# What is done makes a worker fail, or several as long as the fault is on.
sub worker_fails_over($fault, $code)
{
	my $mark = $a->log_mark;
	$a->set_faults($fault);
	$code->();
	wait_until { failures($mark, "fault: $fault") } "a worker to fail with $fault";
	$a->set_faults('');
	return;
}

# While there is no worker, what zk_session tells is not the point.
sub session_lives
{
	$a->wait_session;
	is($a->session_id, $id, 'the ZooKeeper session is the same');
	return;
}

foreach my $recipe (@recipes)
{
	with_recipe $recipe, 'requests that the worker has only read are served by the next one' => sub ($is, $holder, $waiter, $rival) {
		is($holder->query($is->{ask}), 't', 'there is a holder');
		my $had = holds($holder);
		$rival->query_start($is->{rival_ask});
		$b->wait_queued($rival);

		worker_fails_over('fail-requests', sub { $waiter->query_start($is->{ask}) });
		$a->wait_queued($waiter);
		is_deeply(holds($holder), $had, 'the holder has its node and its token');
		worker_fails_over('fail-requests', sub { $holder->query_start($is->{give}) });
		is($holder->finish, 't', 'it lets go');
		is($rival->finish, 't', 'the next in the queue has it');
		ok($waiter->busy, 'who came later waits');
		is($rival->query($is->{rival_give}), 't', 'when that lets go');
		is($waiter->finish, 't', 'its turn comes');
		is($waiter->query($is->{give}), 't', 'and ends');
	};

	with_recipe $recipe, 'nodes that the worker has only heard of are the next one\'s' => sub ($is, $holder, @) {
		my $mark   = $a->log_mark;
		my $writes = @{ $is->{nodes} };    # creates, and as many deletes
		$a->set_faults('fail-written');
		is($holder->query($is->{ask}), 't', 'a node is created, and its owner is granted');
		my $row  = $a->wait_holder($holder);
		my $root = $is->{nodes}[-1];
		is_deeply([ $zk->children($root) ], [ $row->{node} ], 'under one node, and that is its');
		is($row->{fencing_token} >> 12, $zk->shell->stat("$root/$row->{node}")->{czxid}, 'with the token of that')
		  if $recipe ne 'semaphore';    # permits have none
		# Of two writes that are under way when the worker fails, the other one's answer is lost.
		wait_until { failures($mark, 'fault: fail-written') >= 2 * $writes - 1 } 'all writes but the last to have cost a worker';
		is($holder->query($is->{give}), 't', 'it lets go');
		wait_until { !map { $zk->children($_) } @{ $is->{nodes} } } 'the nodes to be gone';
		wait_until { failures($mark, 'fault: fail-written') >= 2 * $writes } 'each write to have cost a worker';
		$a->set_faults('');
		$a->wait_session;
		is(failures($mark, 'fault: fail-written'), 2 * $writes, 'one for each write');
	};

	with_recipe $recipe, 'what the worker has no memory to hear of is found out' => sub ($is, $holder, $waiter, $rival) {
		is($holder->query("SELECT zk_lock('/f/memory/held')"), 't', 'there is a lock that nobody disputes');
		my $had = holds($holder);
		is($rival->query($is->{rival_ask}), 't', 'and one that is taken elsewhere');
		$waiter->query_start($is->{ask});
		$a->wait_queued($waiter);

		my $mark = $a->log_mark;
		$a->set_faults('no-memory');
		is($rival->query($is->{rival_give}), 't', 'which is released');
		wait_until { failures($mark, 'out of memory') >= 2 } 'workers to fail again and again';
		ok($waiter->busy, 'who waits for it waits on');
		is_deeply(holds($holder), $had, 'who holds a lock holds it');
		$a->set_faults('');
		is($waiter->finish, 't', 'with memory, its turn comes');
		$a->wait_session;
		is_deeply(holds($holder), $had, 'node and token of the holder are as they were');
		$waiter->query($is->{give});
	};
}

# The worker is about to grant what the waiter gives up at that moment: it has taken up the holder's release.
foreach my $recipe (qw(exclusive semaphore))
{
	with_recipe $recipe, 'a grant that crosses the end of its wait goes to the next' => sub ($is, $holder, $waiter, $rival) {
		is($holder->query($is->{ask}), 't', 'there is a holder');
		$waiter->query_start($is->{ask});
		$a->wait_queued($waiter);
		$rival->query_start($is->{rival_ask});
		$b->wait_queued($rival);
		$a->set_faults('slow-grants');
		$holder->query_start($is->{give});
		wait_until { !$a->lock_count('granted AND pid = ' . $holder->pid) } 'the release to be taken up';
		is($waiter->cancelled, '57014', 'the waiter gives up');
		is($rival->finish, 't', 'the next in the queue has it');
		is($holder->finish, 't', 'the holder has let go');
		$a->set_faults('');
		is($rival->query($is->{rival_give}), 't', 'and that ends');
	};
}

subtest 'a worker that fails while it writes what zk_session shows ends, again and again' => sub {
	hold($a, 'holder', '/f/view');
	my $token = token('holder', '/f/view');
	queue($a, 'waiter', '/f/view');

	$a->set_faults('fail-status');
	my $mark = $a->log_mark;
	is($a->value('SELECT pg_terminate_backend(worker_pid) FROM zk_session'), 't', 'the next worker will fail');
	wait_until { failures($mark, 'fault: fail-status') >= 2 } 'workers to fail with fail-status, one after the other';
	$a->set_faults('');

	session_lives();
	is(token('holder', '/f/view'), $token, 'the holder has its token');
	ok($s{waiter}->busy, 'the waiter waits');
	$s{holder}->hands_over('/f/view', $s{waiter}, 'when the holder lets go, the waiter has the lock');
	all_disconnect();
};

# ---- processes that are stopped, as by a debugger

sub is_stopped($pid) { return slurp_file("/proc/$pid/stat") =~ /\) T /; }

# The worker that is stopped goes on, without the fault.
sub worker_goes_on($stopped)
{
	my $mark = $a->log_mark;
	$a->set_conf('zklock.faults' => '');
	# It may be stopped once more before it reads the setting.
	wait_until { kill 'CONT', $stopped; $a->log_since($mark) =~ /\[$stopped\].* faults are now ""/ } 'it to go on without the fault';
	return session_lives();
}

# A session is stopped in a statement, by a fault of its own, and goes on in the end.
sub stopping_itself($name, $fault, $sql, $code)
{
	on($a, $name)->query("SET zklock.faults = '$fault'");
	$s{$name}->query_start($sql);
	wait_until { is_stopped($s{$name}->pid) } "$name to be stopped";
	$code->();
	# Each time that it comes there it is stopped again.
	$a->value('SELECT pg_cancel_backend(' . $s{$name}->pid . ')');
	wait_until { kill 'CONT', $s{$name}->pid; !$s{$name}->busy } "$name to go on";
	$s{$name}->result;
	$s{$name}->query('RESET zklock.faults');
	return;
}

subtest 'a worker that is stopped while it writes what zk_session shows keeps nobody from giving up' => sub {
	hold($a, 'holder', '/f/stopped');
	queue($a, 'waiter', '/f/stopped');
	my $token  = token('holder', '/f/stopped');
	my $worker = $a->worker_pid;

	$a->set_faults('stop-status');
	is($a->value('SELECT pg_terminate_backend(worker_pid) FROM zk_session'), 't', 'the next worker will be stopped');
	my $stopped;
	wait_until {
		$stopped = $a->value("SELECT max(pid) FROM pg_stat_activity WHERE backend_type = 'zklock worker' AND pid <> $worker");
		$stopped && is_stopped($stopped);
	} 'it to be stopped';
	is($s{waiter}->cancelled, '57014', 'who waits gives up');
	like($a->value('SELECT obstacle FROM zk_session'), qr/^The zklock worker has been stopped/, 'zk_session says why nothing is granted');
	worker_goes_on($stopped);
	is(token('holder', '/f/stopped'), $token, 'the holder has its token');
	all_disconnect();
};

subtest 'a worker that is stopped while it looks whose turn at a queue it is keeps nobody from giving up' => sub {
	my $take = "SELECT zk_queue_take('/f/queue')";
	on($a, "taker $_")->query_start($take) foreach 1 .. 3;
	wait_until { $zk->watch_count } 'them to wait';
	$a->wait_event($s{"taker $_"}, 'element') foreach 1 .. 3;
	my $worker = $a->worker_pid;
	$a->set_faults('stop-queue');
	on($b, 'offerer')->query("SELECT zk_queue_offer('/f/queue', 'x')");
	wait_until { is_stopped($worker) } 'the worker to be stopped';
	is($s{'taker 2'}->cancelled, '57014', 'a wait is cancelled');
	is($s{'taker 1'}->terminated, '57P01', 'a session is terminated');
	worker_goes_on($worker);
	is($s{'taker 3'}->finish, 'x', 'the next one has the element');
	all_disconnect();
};

subtest 'a backend that is stopped while it reads what zk_session shows does not stop the worker' => sub {
	hold($a, 'holder', '/f/view');
	my $token = token('holder', '/f/view');
	stopping_itself('reader', 'stop-view', 'SELECT state FROM zk_session', sub {
		my $worker = $a->worker_pid;
		$a->value("SELECT pg_terminate_backend($worker)");
		$a->wait_new_worker($worker);
		session_lives();
		is(token('holder', '/f/view'), $token, 'the holder has its token');
	});
	all_disconnect();
};

subtest 'a backend that is stopped while it has the lock of the search for deadlocks keeps nobody' => sub {
	hold($a, 'holder', '/f/search');
	on($a, $_)->query("SET deadlock_timeout = '10ms'; SET log_lock_waits = on") foreach qw(searcher waiter other next);
	stopping_itself('searcher', 'stop-search', "SELECT zk_lock('/f/search')", sub {
		my $mark = $a->log_mark;
		$s{$_}->query_start("SELECT zk_lock('/f/search')") foreach qw(waiter other next);
		$a->wait_log(qr/process @{[ $s{$_}->pid ]} still waiting for/, $mark) foreach qw(waiter other next);
		is($s{waiter}->cancelled, '57014', 'a wait is cancelled');
		is($s{other}->terminated, '57P01', 'a session is terminated');
		$a->reload;
		session_lives();
	});
	$s{holder}->hands_over('/f/search', $s{next}, 'who goes on waiting has its turn');
	all_disconnect();
};

subtest 'no room for a watch' => sub {
	my $permit = q(SELECT zk_semaphore_acquire('/f/own', 1));
	is(on($a, 'holder')->query($permit), 't', 'a permit is held, whose path is not listed again');
	hold($b, 'foreigner', '/f/foreign');
	hold($a, 'owner', '/f/mine');
	queue($a, 'mate', '/f/mine');
	$a->set_faults('watches-full');
	# The news of a newcomer uses up the watch that covers the holder's node.
	on($b, 'newcomer')->query_start($permit);
	$zk->wait_children('/f/own/leases', 2);
	fails(on($a, 'asker')->try("SELECT zk_lock('/f/foreign')"), '53200', 'who would have to watch is refused', message => qr/too many paths are locked$/);
	my $node = $a->wait_holder($s{holder}, '/f/own')->{node};
	on($b, 'late')->query_start(q{SELECT zk_lock('/f/mine')});
	$zk->wait_children('/f/mine', 2);
	# Before A has the news, which use up the watch, it may well grant.
	$a->settle;
	is($s{owner}->query(q{SELECT zk_unlock('/f/mine')}), 't', 'a lock is released, whose node is not watched');
	$a->settle;
	is($a->lock_count(q{path = '/f/mine' AND state = 'held'}), 0, 'nobody is granted under a node whose end would not be heard of');
	$a->set_faults('');
	is($s{mate}->finish, 't', 'before there is room');
	is($s{mate}->query(q{SELECT zk_unlock('/f/mine')}), 't', 'it is released');
	is($s{late}->finish, 't', 'and the next one has it');
	$zk->wait_watched("/f/own/leases/$node", $a->session_id);
	$zk->shell->delete("/f/own/leases/$node");
	$a->wait_lock($s{holder}, 'lost', '/f/own');
	is($s{newcomer}->finish, 't', 'when there is room, it hears of the end of its node');
	all_disconnect();
};

my $victim = $a->session(name => 'victim');

subtest 'who gives up before it is taken up' => sub {
	$a->set_faults('slow-requests');
	$victim->query_start("SELECT zk_lock('/f/own')");
	$a->wait_lock($victim, 'requested', '/f/own');
	is($victim->cancelled, '57014', 'is not waited for');
	$a->set_faults('');
	$a->wait_value('SELECT count(*) FROM zk_locks', 0);
};

my $other  = $a->session(name => 'other');
my $next   = $b->session(name => 'next');

# What is asked for, and what one who is excluded by it asks for and gives back
my @exclusive = (q{SELECT zk_lock('/g/path')}, q{SELECT zk_unlock('/g/path')});
my @requests = (
	[ 'exclusive lock',            $exclusive[0], @exclusive ],
	[ 'exclusive lock, in time',   q{SELECT zk_lock('/g/path', '30s')}, @exclusive ],
	[ 'exclusive lock, no wait',   q{SELECT zk_try_lock('/g/path')}, @exclusive ],
	[ 'lock of a transaction',     q{SELECT zk_xact_lock('/g/path')}, @exclusive ],
	[ 'shared lock',               q{SELECT zk_lock_shared('/g/path')}, @exclusive ],
	[ 'shared, of a transaction',  q{SELECT zk_xact_lock_shared('/g/path')}, @exclusive ],
	[ 'several locks',             q{SELECT zk_lock(ARRAY['/g/path', '/g/another'])}, @exclusive ],
	[ 'tree',                      q{SELECT zk_lock_tree('/g/path', '/g')}, @exclusive ],
	[ 'semaphore', (q{SELECT zk_semaphore_acquire('/g/semaphore', 1)}) x 2, q{SELECT zk_semaphore_release('/g/semaphore')} ]);

foreach my $fault (qw(fail-asked fail-granted))
{
	foreach my $recipe (@requests)
	{
		my ($name, $ask, $next_ask, $next_give) = @$recipe;
		subtest "$fault, $name: the statement fails and the next one has it" => sub {
			$victim->query("SET zklock.faults = '$fault'");
			is($victim->try($ask)->{message}, "fault: $fault", 'the statement fails');
			$victim->query('RESET zklock.faults');
			$a->wait_value('SELECT count(*) FROM zk_locks', 0);
			is($next->query($next_ask), 't', 'somebody else has it');
			is($next->query($next_give), 't', 'and gives it back');
			is($victim->query($ask), 't', 'which without the fault the session can have, too');
			$victim->query('SELECT zk_unlock_all()');
		};
	}

	subtest "$fault: what the session has from before stays" => sub {
		$victim->query(q{BEGIN; SELECT zk_lock('/g/session'), zk_lock_shared('/g/path'), zk_xact_lock('/g/transaction')});
		my $had = holds($victim);
		is(scalar(@$had), 3, 'it has three locks');
		foreach my $recipe (@requests)
		{
			my ($name, $ask) = @$recipe;
			next if $ask =~ /shared/;    # has it, and is asked for nothing
			$victim->query("SAVEPOINT s; SET LOCAL zklock.faults = '$fault'");
			is($victim->try($ask)->{message}, "fault: $fault", "$name: the statement fails");
			$victim->query('ROLLBACK TO s');
			$a->wait_value('SELECT count(*) FROM zk_locks', 3);
			is_deeply(holds($victim), $had, "$name: the session has what it had");
		}
		$victim->query('COMMIT; SELECT zk_unlock_all()');
	};

	subtest "$fault: who waits behind is not held up" => sub {
		is($other->query(q{SELECT zk_lock('/g/path')}), 't', 'a session of the server holds the lock');
		$victim->query("SET zklock.faults = '$fault'");
		$victim->query_start(q{SELECT zk_lock('/g/path')});
		$a->wait_queued($victim, '/g/path') if $fault eq 'fail-granted';
		$next->start_queued(q{SELECT zk_lock('/g/path')}, '/g/path');
		is($other->query(q{SELECT zk_unlock('/g/path')}), 't', 'that lets go');
		is($victim->result->{message}, "fault: $fault", 'the one behind it fails');
		is($next->finish, 't', 'the next has the lock');
		$next->query(q{SELECT zk_unlock('/g/path')});
		$victim->query('RESET zklock.faults');
	};
}

$_->end_sessions foreach $a, $b;
my @below = qw(another path session transaction);
Zklock::Server->assert_clean($zk, [ $a, $b ], @folders, '/f/memory/held', '/f/view', '/g/semaphore/locks',
	'/g/semaphore/leases', map { "/g/$_" } @below);
is_deeply([ sort $zk->children('/g') ], [ sort @below, 'semaphore' ], 'nor for the tree');
done_clean($zk, $a, $b);
