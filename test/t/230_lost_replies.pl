# Copyright (c) 2026, zklock contributors
#
# Requests and replies that get lost, one at a time, while several sessions want the same lock: they keep
# their places, and hear of the end of their predecessors. What becomes of a session at each call is in the
# table of faults, 292_faults_of_locks.pl; of one that gives up meanwhile, in 130_cancel.pl. Here all who wait for
# one create give up.
#
# A server that loses the reply to a create does not know whether its node exists. If it
# took it for missing, a node that nobody knows of would block the path for as long as the
# session lives; if it took it for existing, a contender would lose its place or have two.
# So the outcome is found out, and deletes are repeated until the node is known to be gone.
#
# Server a talks to ZooKeeper through a proxy that loses the k-th reply or request of a
# kind, and its connection with it; b talks to ZooKeeper directly.

use Zklock::Test;

# The timeout is long enough to expire never, which is checked at the end; the pause between attempts to
# connect is a sixtieth of it.
my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '12s');
my $id   = $a->session_id;

my @as = map { $a->session(name => "a$_") } 1 .. 4;
my @bs = map { $b->session(name => "b$_") } 1 .. 2;

# Until a watches the first node of a path: has heard that it must wait for it.
sub wait_watching($path)
{
	my ($node) = $zk->children($path);
	return $zk->wait_watched("$path/$node", $id);
}

my @fates = ([ lose_reply => 'reply' ], [ lose_request => 'request' ]);

foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
	subtest "sessions that wait keep their order when the $thing of a create is lost" => sub {
		foreach my $k (1 .. 3)
		{
			my $path = "/l/wait-$thing-$k";
			is($bs[0]->query("SELECT zk_lock('$path')"), 't', 'b holds the lock');
			my $fault = $proxy->$lose(op => 'create2', path => "^$path/");
			# k sessions of a, for whom one node stands, or would.
			$as[$_]->start_waiting("SELECT zk_lock('$path')") foreach 0 .. $k - 1;
			ok($proxy->fired($fault), "$thing of create is lost with $k in the queue");
			$a->wait_session;
			wait_until { $zk->children($path) == 2 } 'two nodes, one for each server';
			# A session of b may go before a node that b has not heard of.
			$b->settle;
			$bs[1]->start_waiting("SELECT zk_lock('$path')");
			$bs[0]->query("SELECT zk_unlock('$path')");
			my @order = (@as[ 0 .. $k - 1 ], $bs[1]);
			while (my $next = shift @order)
			{
				is($next->finish, 't', $next->name . ' gets the lock');
				ok($_->busy, $_->name . ' waits') foreach @order;
				is($next->query("SELECT zk_unlock('$path')"), 't', 'and gives it back');
			}
			Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
		}
	};
}

subtest 'the place is that of the node whose reply was lost' => sub {
	my $path = '/l/place';
	$bs[0]->query("SELECT zk_lock('$path')");
	$proxy->hold_reply_of($as[0], "SELECT zk_lock('$path')", op => 'create2', path => "^$path/");
	wait_until { $zk->children($path) == 2 } 'the node';
	my @nodes = $zk->children($path);
	$b->settle;
	$bs[1]->start_waiting("SELECT zk_lock('$path')");
	wait_until { $zk->children($path) == 3 } 'the node of a newcomer';
	$a->cut_off($proxy);
	$a->reconnect($proxy);
	$a->wait_value("SELECT node FROM zk_locks WHERE path = '$path'", $nodes[1]);
	pass('the node is found again');
	$bs[0]->hands_over($path, $as[0], 'and keeps its place');
	ok($bs[1]->busy, 'before who came after it');
	$as[0]->hands_over($path, $bs[1], 'who is next');
	$bs[1]->query("SELECT zk_unlock('$path')");
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
};

foreach my $op (qw(setWatches sync))
{
	foreach my $fate (@fates)
	{
		my ($lose, $thing) = @$fate;
		subtest "a session hears of the end of its predecessor when the $thing of a $op is lost on a new connection" => sub {
			foreach my $k (1 .. 3)
			{
				my $path  = "/l/$op-$thing-$k";
				my $fault = $proxy->$lose(op => $op, nth => $k);
				$bs[0]->query("SELECT zk_lock('$path')");
				$as[0]->start_waiting("SELECT zk_lock('$path')");
				wait_watching($path);
				# Each new connection sets all watches again.
				until ($proxy->has_fired($fault))
				{
					my $n = $proxy->counts->{$op} || 0;
					$proxy->drop;
					wait_until { ($proxy->counts->{$op} || 0) > $n || $proxy->has_fired($fault) }
					  "$op on a new connection";
				}
				ok($proxy->fired($fault), "$thing $k of $op is lost");
				$a->wait_session;
				ok($as[0]->busy, 'the waiter waits');
				$bs[0]->hands_over($path, $as[0], 'and hears of the end of its predecessor');
				$a->one_node($zk, $path, 'with one node');
				$as[0]->query("SELECT zk_unlock('$path')");
				Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
			}
		};
	}
}

subtest 'a session hears of the end of its predecessor when the event is lost with its connection' => sub {
	foreach my $k (1 .. 3)
	{
		my $path = "/l/event-$k";
		$bs[0]->query("SELECT zk_lock('$path')");
		$as[$_]->start_waiting("SELECT zk_lock('$path')") foreach 0 .. $k - 1;
		wait_watching($path);
		$proxy->blackhole('replies');
		$bs[0]->query("SELECT zk_unlock('$path')");
		wait_until { $zk->children($path) == 1 } 'the predecessor to be gone';
		$proxy->cut;
		$proxy->heal;
		foreach my $i (0 .. $k - 1)
		{
			is($as[$i]->finish, 't', "a lost event holds up nobody of $k");
			$as[$i]->query("SELECT zk_unlock('$path')");
		}
		Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
	}
};

# A whole story: a1 holds the lock, b1 and others wait, a1 releases it, and they follow one after
# the other. Whether b1 or a2 is first depends on when a hears of b1; that it is one at a time
# does not.
sub tell_story($path, $what)
{
	my @trouble;
	my @token;
	$as[0]->query("SELECT zk_lock('$path')");
	push @token, $as[0]->query("SELECT zk_fencing_token('$path')");
	$bs[0]->start_waiting("SELECT zk_lock('$path')");
	$as[1]->start_waiting("SELECT zk_lock('$path')");
	$as[2]->start_waiting("SELECT zk_lock('$path')");
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
	is(tell_story('/l/story', 'undisturbed'), '', 'the undisturbed story');
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
			my $fault_list = tell_story($path, "$thing $step");
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

foreach my $op (qw(create2 getChildren))
{
	foreach my $fate (@fates)
	{
		my ($lose, $thing) = @$fate;
		subtest "a call that must answer at once fails when the $thing of a $op is lost" => sub {
			$as[0]->query("SELECT zk_lock('/l/try')");    # the path exists
			$as[0]->query("SELECT zk_unlock('/l/try')");
			my $fault = $proxy->$lose(op => $op, path => '^/l/try');
			is($as[0]->try("SELECT zk_try_lock('/l/try')")->{sqlstate}, '58030',
				"zk_try_lock with a lost $thing of $op is an error");
			ok($proxy->fired($fault), 'which was lost');
			$a->wait_session;
			$a->assert_clean($zk, '/l/try');
			is($as[0]->query("SELECT zk_try_lock('/l/try')"), 't', 'the next one succeeds');
			$as[0]->query("SELECT zk_unlock('/l/try')");
		};
	}
}

foreach my $when ('before the connection is lost', 'while it is lost', 'and the reply comes late')
{
	subtest "when all sessions of a create give up, $when, who asks afterwards has the only node" => sub {
		my $path  = '/l/give-up-' . $when =~ s/ /-/gr;
		my @other = map { $a->session(name => "other $_") } 1 .. 3;
		my $fault = $proxy->hold_reply(op => 'create2', path => "^$path/");
		$_->query_start("SELECT zk_lock('$path')") foreach @other;
		ok($proxy->fired($fault), 'the node is asked for, and the reply held back');
		$a->wait_waiting($_, $path) foreach @other;
		wait_until { $zk->children($path) == 1 } 'the node';
		$a->cut_off($proxy) if $when =~ /^while/;
		is($_->cancelled, '57014', $_->name . ' gives up') foreach @other;
		$proxy->cut unless $when =~ /^and/;
		$as[0]->query_start("SELECT zk_lock('$path')");
		$proxy->heal;
		is($as[0]->finish, 't', 'who asks afterwards gets the lock');
		# It may have joined the queue of those who gave up: one node in any case.
		wait_until { $zk->children($path) == 1 } "one node to be left in $path";
		$a->one_node($zk, $path, 'and has the only node');
		$as[0]->query("SELECT zk_unlock('$path')");
		Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
	};
}

is($a->session_id, $id, 'it was the same session all the time');
is($a->zk_session->{expirations}, 0, 'without an expiration');
done_clean($zk, $a, $b);
