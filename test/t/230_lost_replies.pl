# Copyright (c) 2026, zklock contributors
#
# Requests and replies that get lost, one at a time: of locks that nobody else wants.
#
# A server that loses the reply to a create does not know whether its node exists. If it
# took it for missing, a node that nobody knows of would block the path for as long as the
# session lives; if it took it for existing, a contender would lose its place or have two.
# So the outcome is found out, and deletes are repeated until the node is known to be gone.
#
# Server a talks to ZooKeeper through a proxy that loses the k-th reply or request of a
# kind, and its connection with it; b talks to ZooKeeper directly.

use strict;
use warnings;

use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(increasing wait_until);
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

my @fates = ([ lose_reply => 'reply' ], [ lose_request => 'request' ]);

foreach my $op (qw(create2 createContainer getChildren))
{
	foreach my $fate (@fates)
	{
		my ($lose, $thing) = @$fate;
		subtest "a $op whose $thing is lost is made up for, wherever it is asked for" => sub {
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
				ok($proxy->fired($fault), "$thing $k of $op is lost");
				is("@got", join(' ', ('t') x $k), 'everybody is granted');
				$a->one_node($zk, $_, "$_ has one node, which is known") foreach @paths;
				is($a->lock_count("path LIKE '/l/$op-$thing-$k-%'"), $k, 'and is held once');
				is($bs[0]->query("SELECT zk_try_lock('$_')"), 'f', 'so that nobody else gets it')
				  foreach @paths;
				is($as[$_]->query("SELECT zk_unlock('$paths[$_]')"), 't', 'unlocked') foreach 0 .. $#paths;
				$a->assert_clean($zk, @paths);
			}
		};
	}
}

foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
	subtest "a create whose $thing is lost is made up for, round after round" => sub {
		foreach my $k (1 .. 3)
		{
			my $fault = $proxy->$lose(op => 'create2', nth => $k, path => '^/l/rounds/');
			my @token;
			foreach my $i (1 .. 3)
			{
				is($as[0]->query("SELECT zk_lock('/l/rounds')"), 't', "round $i is granted");
				$a->one_node($zk, '/l/rounds', 'with one node');
				push @token, $as[0]->query("SELECT zk_fencing_token('/l/rounds')");
				is($as[0]->query("SELECT zk_unlock('/l/rounds')"), 't', 'and unlocked');
			}
			ok($proxy->fired($fault), "the $thing of create $k was lost");
			ok(increasing(@token), "tokens increase: @token");
			$a->assert_clean($zk, '/l/rounds');
		}
	};
}

foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
	subtest "a delete whose $thing is lost is repeated until the node is gone" => sub {
		foreach my $k (1 .. 3)
		{
			my @paths = map { "/l/delete-$thing-$k-$_" } 1 .. $k;
			my $last  = $paths[-1];
			is($as[0]->query("SELECT zk_lock('$_')"), 't', "$_ is held") foreach @paths;
			$bs[0]->query_start("SELECT zk_lock('$last')");
			$b->wait_waiting($bs[0]);
			my $fault = $proxy->$lose(op => 'delete', nth => $k, path => "^/l/delete-$thing-$k-");
			is($as[0]->query("SELECT zk_unlock('$_')"), 't', 'unlocked') foreach @paths;
			ok($proxy->fired($fault), "$thing $k of delete is lost");
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
	};
}

foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
	subtest "a session can lock a path again while a delete whose $thing was lost is not settled" => sub {
		$as[0]->query("SELECT zk_lock('/l/relock')");
		my $fault = $proxy->$lose(op => 'delete', path => '^/l/relock/');
		my $token = $as[0]->query("SELECT zk_fencing_token('/l/relock')");
		$as[0]->query("SELECT zk_unlock('/l/relock')");
		is($as[0]->query("SELECT zk_lock('/l/relock', '1min')"), 't', "locked again after a lost $thing of delete");
		ok($proxy->fired($fault), 'which was lost');
		cmp_ok($as[0]->query("SELECT zk_fencing_token('/l/relock')"), '>', $token, 'with a higher token');
		wait_until { $zk->children('/l/relock') == 1 } 'one node to be left';
		$a->one_node($zk, '/l/relock', 'the right one');
		$as[0]->query("SELECT zk_unlock('/l/relock')");
		$a->assert_clean($zk, '/l/relock');
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

is($a->session_id, $id, 'it was the same session all the time');
is($a->zk_session->{expirations}, 0, 'without an expiration');
$_->disconnect foreach @as, @bs;
Zklock::Server->assert_clean($zk, [ $a, $b ]);
done_testing;
