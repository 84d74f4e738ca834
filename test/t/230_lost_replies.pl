# Copyright (c) 2026, zklock contributors
#
# Requests and replies that get lost, one at a time.
#
# Who loses the reply to a create does not know whether its node exists. If it took the
# one answer for granted, a node nobody knows of would block the path for as long as the
# session lives; with the other, a contender would lose its place or have two. So the
# outcome is found out, and deletes are repeated until the node is known to be gone.
#
# Server a talks to ZooKeeper through a proxy that loses the k-th reply or request of a
# kind, and its connection with it; b talks to ZooKeeper directly.

use strict;
use warnings;

use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
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

# One node of ours, and the one that zk_locks names.
sub one_node
{
	my ($path, $what) = @_;
	my @nodes = $zk->children($path);
	my ($lock) = $a->locks("path = '$path' AND state = 'held'");
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is_deeply([ map { "$_ " . $zk->shell->stat("$path/$_")->{ephemeralOwner} } @nodes ],
		[ ($lock ? $lock->{node} : 'none') . " $id" ], $what);
	return;
}

sub happened
{
	my ($fault, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($proxy->fired($fault), $what);
	return;
}

# Until a watches the first node of a path: has heard that it must wait for it.
sub wait_watching
{
	my ($path) = @_;
	my ($node) = $zk->children($path);
	return $zk->wait_watched("$path/$node", $id);
}

sub increasing
{
	my @numbers = @_;
	return !grep { $numbers[ $_ - 1 ] >= $numbers[$_] } 1 .. $#numbers;
}

my @fates = ([ lose_reply => 'reply' ], [ lose_request => 'request' ]);

# ---- the k-th create, of several in different places

foreach my $op (qw(create2 createContainer getChildren))
{
	foreach my $fate (@fates)
	{
		my ($lose, $thing) = @$fate;
		foreach my $k (1 .. 3)
		{
			my @paths = map { "/l/$op-$thing-$k-$_" } 1 .. $k;
			my $fault = $proxy->$lose(op => $op, nth => $k, path => "^/l/$op-$thing-$k-");
			foreach my $i (0 .. $#paths)
			{
				$as[$i]->query_start("SELECT zk_lock('$paths[$i]')");
				# One after the other, so that the k-th is known to be this one's.
				$a->wait_holder($as[$i], $paths[$i]) if $i < $#paths;
			}
			my @got = map { $as[$_]->finish } 0 .. $#paths;
			happened($fault, "$thing $k of $op is lost");
			is("@got", join(' ', ('t') x $k), 'everybody is granted');
			one_node($_, "$_ has one node, which is known") foreach @paths;
			is($a->lock_count("path LIKE '/l/$op-$thing-$k-%'"), $k, 'and is held once');
			is($bs[0]->query("SELECT zk_try_lock('$_')"), 'f', 'so that nobody else gets it')
			  foreach @paths;
			is($as[$_]->query("SELECT zk_unlock('$paths[$_]')"), 't', 'unlocked') foreach 0 .. $#paths;
			$a->assert_clean($zk, @paths);
		}
	}
}

# ---- the k-th create on one path, round after round

foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
	foreach my $k (1 .. 3)
	{
		my $fault = $proxy->$lose(op => 'create2', nth => $k, path => '^/l/rounds/');
		my @token;
		foreach my $i (1 .. 3)
		{
			is($as[0]->query("SELECT zk_lock('/l/rounds')"), 't', "round $i is granted");
			one_node('/l/rounds', 'with one node');
			push @token, $as[0]->query("SELECT zk_fencing_token('/l/rounds')");
			is($as[0]->query("SELECT zk_unlock('/l/rounds')"), 't', 'and unlocked');
		}
		happened($fault, "the $thing of create $k was lost");
		ok(increasing(@token), "tokens increase: @token");
		$a->assert_clean($zk, '/l/rounds');
	}
}

# ---- the k-th delete

foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
	foreach my $k (1 .. 3)
	{
		my @paths = map { "/l/delete-$thing-$k-$_" } 1 .. $k;
		my $last  = $paths[-1];
		is($as[0]->query("SELECT zk_lock('$_')"), 't', "$_ is held") foreach @paths;
		$bs[0]->query_start("SELECT zk_lock('$last')");
		$b->wait_waiting($bs[0]);
		my $fault = $proxy->$lose(op => 'delete', nth => $k, path => "^/l/delete-$thing-$k-");
		is($as[0]->query("SELECT zk_unlock('$_')"), 't', 'unlocked') foreach @paths;
		happened($fault, "$thing $k of delete is lost");
		is($bs[0]->finish, 't', 'another server gets the lock');
		is(scalar($zk->children($last)), 1, 'the node is gone');
		$a->wait_value("SELECT count(*) FROM zk_locks WHERE path LIKE '/l/delete-%'", 0);
		pass('and the request is forgotten');
		$a->wait_session;
		is($as[0]->query("SELECT zk_try_lock('$_')"), 't', 'what was unlocked can be locked again')
		  foreach @paths[ 0 .. $#paths - 1 ];
		$as[0]->query('SELECT zk_unlock_all()');
		$bs[0]->query("SELECT zk_unlock('$last')");
		Zklock::Server->assert_clean($zk, [ $a, $b ], @paths);
	}
}

# A session that locks the path again while the delete before is not settled.
foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
	$as[0]->query("SELECT zk_lock('/l/relock')");
	my $fault = $proxy->$lose(op => 'delete', path => '^/l/relock/');
	my $token = $as[0]->query("SELECT zk_fencing_token('/l/relock')");
	$as[0]->query("SELECT zk_unlock('/l/relock')");
	is($as[0]->query("SELECT zk_lock('/l/relock', '1min')"), 't', "locked again after a lost $thing of delete");
	happened($fault, 'which was lost');
	cmp_ok($as[0]->query("SELECT zk_fencing_token('/l/relock')"), '>', $token, 'with a higher token');
	wait_until { $zk->children('/l/relock') == 1 } 'one node to be left';
	one_node('/l/relock', 'the right one');
	$as[0]->query("SELECT zk_unlock('/l/relock')");
	$a->assert_clean($zk, '/l/relock');
}

# ---- while others wait

foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
	foreach my $k (1 .. 3)
	{
		my $path = "/l/wait-$thing-$k";
		is($bs[0]->query("SELECT zk_lock('$path')"), 't', 'b holds the lock');
		my $fault = $proxy->$lose(op => 'create2', path => "^$path/");
		# k sessions of a, for whom one node stands, or would.
		foreach my $i (0 .. $k - 1)
		{
			$as[$i]->query_start("SELECT zk_lock('$path')");
			$a->wait_waiting($as[$i]);
		}
		happened($fault, "$thing of create is lost with $k in the queue");
		$a->wait_session;
		wait_until { $zk->children($path) == 2 } 'two nodes, one for each server';
		$bs[1]->query_start("SELECT zk_lock('$path')");
		$b->wait_waiting($bs[1]);
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
}

# The place is that of the node whose reply was lost: who comes while we do not know of
# it comes after us.
{
	my $path = '/l/place';
	$bs[0]->query("SELECT zk_lock('$path')");
	my $fault = $proxy->hold_reply(op => 'create2', path => "^$path/");
	$as[0]->query_start("SELECT zk_lock('$path')");
	happened($fault, 'a reply of create is held back');
	wait_until { $zk->children($path) == 2 } 'the node';
	my @nodes = $zk->children($path);
	$bs[1]->query_start("SELECT zk_lock('$path')");
	$b->wait_waiting($bs[1]);
	wait_until { $zk->children($path) == 3 } 'the node of a newcomer';
	$proxy->cut;
	$a->wait_session('connecting');
	$proxy->heal;
	$a->wait_session;
	$a->wait_value("SELECT node FROM zk_locks WHERE path = '$path'", $nodes[1]);
	pass('the node is found again');
	$bs[0]->query("SELECT zk_unlock('$path')");
	is($as[0]->finish, 't', 'and keeps its place');
	ok($bs[1]->busy, 'before who came after it');
	$as[0]->query("SELECT zk_unlock('$path')");
	is($bs[1]->finish, 't', 'who is next');
	$bs[1]->query("SELECT zk_unlock('$path')");
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
}

# ---- watches: what is to be heard of the predecessor

foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
	foreach my $k (1 .. 3)
	{
		my @paths = map { "/l/getData-$thing-$k-$_" } 1 .. $k;
		my $fault = $proxy->$lose(op => 'getData', nth => $k, path => "^/l/getData-$thing-$k-");
		foreach my $i (0 .. $#paths)
		{
			$bs[0]->query("SELECT zk_lock('$paths[$i]')");
			$as[$i]->query_start("SELECT zk_lock('$paths[$i]')");
			$a->wait_waiting($as[$i]);
		}
		happened($fault, "$thing $k of getData is lost");
		$a->wait_session;
		ok($as[$_]->busy, 'the waiter waits') foreach 0 .. $#paths;
		foreach my $i (0 .. $#paths)
		{
			$bs[0]->query("SELECT zk_unlock('$paths[$i]')");
			is($as[$i]->finish, 't', 'and hears of the end of its predecessor');
			$as[$i]->query("SELECT zk_unlock('$paths[$i]')");
		}
		Zklock::Server->assert_clean($zk, [ $a, $b ], @paths);
	}
}

foreach my $op (qw(setWatches sync))
{
	foreach my $fate (@fates)
	{
		my ($lose, $thing) = @$fate;
		foreach my $k (1 .. 3)
		{
			my $path  = "/l/$op-$thing-$k";
			my $fault = $proxy->$lose(op => $op, nth => $k);
			$bs[0]->query("SELECT zk_lock('$path')");
			$as[0]->query_start("SELECT zk_lock('$path')");
			$a->wait_waiting($as[0]);
			wait_watching($path);
			# Each new connection sets all watches again.
			until ($proxy->has_fired($fault))
			{
				my $n = $proxy->counts->{$op} || 0;
				$proxy->drop;
				wait_until { ($proxy->counts->{$op} || 0) > $n || $proxy->has_fired($fault) }
				  "$op on a new connection";
			}
			happened($fault, "$thing $k of $op is lost");
			$a->wait_session;
			ok($as[0]->busy, 'the waiter waits');
			$bs[0]->query("SELECT zk_unlock('$path')");
			is($as[0]->finish, 't', 'and hears of the end of its predecessor');
			one_node($path, 'with one node');
			$as[0]->query("SELECT zk_unlock('$path')");
			Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
		}
	}
}

# The event itself is lost with its connection.
foreach my $k (1 .. 3)
{
	my $path = "/l/event-$k";
	$bs[0]->query("SELECT zk_lock('$path')");
	foreach my $i (0 .. $k - 1)
	{
		$as[$i]->query_start("SELECT zk_lock('$path')");
		$a->wait_waiting($as[$i]);
	}
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

# ---- cancelled while the outcome is unknown

my %give_up = (
	'pg_cancel_backend' => sub {
		my ($s) = @_;
		$s->cancel;
		return $s->result->{sqlstate} eq '57014';
	},
	'pg_terminate_backend' => sub {
		my ($s) = @_;
		$s->terminate;
		return $s->result->{sqlstate} eq '57P01';
	},
	'a client that vanishes' => sub {
		my ($s) = @_;
		my $pid = $s->pid;
		$s->vanish;
		# The server notices when it next writes to the client.
		$a->terminate_backend($pid);
		return 1;
	},
	'statement_timeout' => sub { my ($s) = @_; return $s->result->{sqlstate} eq '57014'; },
	'lock_timeout'      => sub { my ($s) = @_; return $s->result->{sqlstate} eq '55P03'; },
	'the timeout'       => sub {
		my ($s) = @_;
		my $result = $s->result;
		return ($result->{text} || '') eq 'f' || $result->{sqlstate} eq '58030';
	});

my $n = 0;
foreach my $how (sort keys %give_up)
{
	foreach my $when ('before the connection is lost', 'while it is lost', 'and the reply comes late')
	{
		foreach my $k (1 .. 3)
		{
			my $path = '/l/cancel-' . ++$n;
			my @sessions = map { $a->session } 1 .. $k;
			my $fault = $proxy->hold_reply(op => 'create2', path => "^$path/");
			# To give up before the node is asked for would be no test: then it is tried again,
			# with more time.
			my $asked;
			for (my $ms = 300; !$asked; $ms *= 2)
			{
				my $call = $how eq 'the timeout' ? "zk_lock('$path', '$ms ms')" : "zk_lock('$path')";
				if ($how =~ /^\w+_timeout$/)
				{
					$_->query("SET $how = '$ms ms'") foreach @sessions;
				}
				$_->query_start("SELECT $call") foreach @sessions;
				foreach my $s ($how =~ /timeout/ ? () : @sessions) { $a->wait_waiting($s); }
				wait_until { ($asked = $proxy->has_fired($fault)) || !grep { $_->busy } @sessions }
				'the node to be asked for, or everybody to give up';
				$asked ||= $proxy->has_fired($fault);
				$_->result foreach $asked ? () : @sessions;
			}
			wait_until { $zk->children($path) == 1 } 'the node';
			if ($when =~ /^while/)
			{
				$proxy->cut;
				$a->wait_session('connecting');
			}
			my $given_up = grep { $give_up{$how}->($_) } @sessions;
			is($given_up, $k, "$k given up by $how, $when");
			$proxy->cut unless $when =~ /^and/;
			$as[0]->query_start("SELECT zk_lock('$path')");
			$proxy->heal;
			is($as[0]->finish, 't', 'who asks afterwards gets the lock');
			# It may have joined the queue of those who gave up: one node in any case.
			wait_until { $zk->children($path) == 1 } "one node to be left in $path";
			one_node($path, 'and has the only node');
			$as[0]->query("SELECT zk_unlock('$path')");
			$_->disconnect foreach @sessions;
			$a->assert_clean($zk, $path);
		}
	}
}

# The same with nobody who comes afterwards.
foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
	foreach my $k (1 .. 3)
	{
		my @paths = map { "/l/orphan-$thing-$k-$_" } 1 .. $k;
		# All creates are on their way when the connection breaks, with the k-th.
		$bs[0]->query("SELECT zk_lock('$_')") foreach @paths;
		my $fault = $proxy->$lose(op => 'create2', nth => $k, path => "^/l/orphan-$thing-$k-");
		$as[$_]->query_start("SELECT zk_lock('$paths[$_]')") foreach 0 .. $#paths;
		happened($fault, "$thing $k of create is lost");
		$as[$_]->cancel foreach 0 .. $#paths;
		is($as[$_]->result->{sqlstate}, '57014', 'cancelled') foreach 0 .. $#paths;
		wait_until { $zk->children($_) == 1 } "only the holder in $_" foreach @paths;
		pass('nothing is left but the holder');
		$bs[0]->query("SELECT zk_unlock('$_')") foreach @paths;
		Zklock::Server->assert_clean($zk, [ $a, $b ], @paths);
	}
}

# A call that must answer now cannot wait for the outcome.
foreach my $op (qw(create2 getChildren))
{
	foreach my $fate (@fates)
	{
		my ($lose, $thing) = @$fate;
		$as[0]->query("SELECT zk_lock('/l/try')");    # the path exists
		$as[0]->query("SELECT zk_unlock('/l/try')");
		my $fault = $proxy->$lose(op => $op, path => '^/l/try');
		is($as[0]->try("SELECT zk_try_lock('/l/try')")->{sqlstate}, '58030',
			"zk_try_lock with a lost $thing of $op is an error");
		happened($fault, 'which was lost');
		$a->wait_session;
		$a->assert_clean($zk, '/l/try');
		is($as[0]->query("SELECT zk_try_lock('/l/try')"), 't', 'the next one succeeds');
		$as[0]->query("SELECT zk_unlock('/l/try')");
	}
}

# ---- the connection cut at each message of a whole story
#
# a1 holds, b1 and a2 wait, a1 unlocks, the others follow one after the other. Who of b1
# and a2 is first depends on when a hears of b1; that it is one at a time does not.

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

is(story('/l/story', 'undisturbed'), '', 'the undisturbed story');
$a->assert_clean($zk, '/l/story');
foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
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
}

is($a->session_id, $id, 'it was the same session all the time');
is($a->zk_session->{expirations}, 0, 'without an expiration');
$_->disconnect foreach @as, @bs;
Zklock::Server->assert_clean($zk, [ $a, $b ], '/l/story');
done_testing;
