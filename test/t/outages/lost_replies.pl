# Copyright (c) 2026, zklock contributors
#
# Requests and replies that get lost, one at a time, while several sessions want the same lock: they keep
# their places, and hear of the end of their predecessors. What becomes of a session at each call is in the
# table of faults, faults/faults_of_locks.pl; of one that gives up meanwhile, in locks/cancel.pl.
#
# A server that loses the reply to a create does not know whether its node exists. If it
# took it for missing, a node that nobody knows of would block the path for as long as the
# session lives; if it took it for existing, a contender would lose its place or have two.
# So the outcome is found out, and deletes are repeated until the node is known to be gone.
#
# In each dialect, among nodes of others whose names have the same form, a session has one node, knows which, and leaves
# none behind.
#
# Server a talks to ZooKeeper through a proxy that loses the k-th reply or request of a
# kind, and its connection with it; b talks to ZooKeeper directly.

use Zklock::Test;
use Zklock::Cast;

# The timeout is long enough to expire never, which is checked at the end; the pause between attempts to
# connect is a sixtieth of it.
my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '12s');
my $id   = $a->session_id;

my @as = map { on($a, "a$_") } 1 .. 3;
my @bs = map { on($b, "b$_") } 1 .. 2;

# Until a watches the first node of a path: has heard that it must wait for it.
sub wait_watching($path)
{
	my ($node) = $zk->children($path);
	return $zk->wait_watched("$path/$node", $id);
}

subtest 'the place is that of the node whose reply was lost' => sub {
	my $path = '/l/place';
	$bs[0]->query("SELECT zk_lock('$path')");
	$proxy->hold_reply_of($as[0], "SELECT zk_lock('$path')", op => 'create2', path => "^$path/");
	wait_until { $zk->children($path) == 2 } 'the node';
	my @nodes = $zk->children($path);
	$as[$_]->start_waiting("SELECT zk_lock('$path')") foreach 1, 2;
	$b->settle;
	$bs[1]->start_waiting("SELECT zk_lock('$path')");
	wait_until { $zk->children($path) == 3 } 'the node of a newcomer';
	$a->cut_off($proxy);
	$a->reconnect($proxy);
	$a->wait_value("SELECT DISTINCT node FROM zk_locks WHERE path = '$path'", $nodes[1]);
	hand_on($path, qw(b1 a1 a2 a3 b2));
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
};

subtest 'nobody waits behind a node that ZooKeeper does not show' => sub {
	my ($path, $shell) = ('/l/hidden', $zk->shell);
	$shell->add_auth('digest', 'admin:secret');
	$shell->create($path, makepath => 1, acl => [ [ 'digest', 'admin:secret', 'cdrwa' ], [ 'world', 'anyone', 'cdwa' ] ]);
	my $fault = $proxy->lose_reply(op => 'create2', path => "^$path/");
	$as[0]->query_start("SELECT zk_lock('$path')");
	$proxy->fired($fault);
	is($as[0]->result->{sqlstate}, '42501', 'whose node may not be looked for is refused');
	is($as[1]->try("SELECT zk_lock('$path')")->{sqlstate}, '42501', 'so is a newcomer');
	$shell->set_acl($path, [ [ 'world', 'anyone', 'cdrwa' ] ]);
	wait_until { !$zk->children($path) } 'the node to be found and deleted';
	is($as[1]->query("SELECT zk_lock('$path') AND zk_unlock('$path')"), 't', 'the path can be locked again');
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
};

foreach my $op (qw(setWatches sync))
{
	foreach my $lose (qw(lose_reply lose_request))
	{
		my $thing = $lose =~ s/lose_//r;
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

# ---- in each dialect, among nodes of others whose names have the same form
#
# Hive's names have no UUID. A node with such a name may belong to another client, or to another run of this server. And
# when somebody has deleted the path's node, the next node has the same name again.

my $shell = $zk->shell;
my @dialects = qw(curator curator_rw kazoo zookeeper hive);

sub write_as($dialect) { $a->write_dialect($dialect, @as); return; }

# A foreign contender with a name of the same form is before us, and one behind us; another
# run of our own, of the same name, is there as well.
my %foreign = (
	curator    => '_c_00000000-0000-4000-8000-000000000000-lock-',
	curator_rw => '_c_00000000-0000-4000-8000-000000000000-__WRIT__',
	kazoo      => '00000000000040008000000000000000__lock__',
	zookeeper  => 'x-72057594037927936-',
	hive       => 'LOCK-EXCLUSIVE-');

sub foreign($path, $dialect)
{
	return $shell->create("$path/$foreign{$dialect}", ephemeral => 1, sequence => 1, makepath => 1);
}

# What befalls a session that creates its node, which is there when this returns
my %fate = (
	'the reply is lost' => sub ($session, $path) {
		my $fault = $proxy->lose_reply(op => 'create2', path => "^$path/");
		$session->query_start("SELECT zk_lock('$path')");
		$proxy->fired($fault);
	},
	'the worker ends before the reply' => sub ($session, $path) {
		$proxy->hold_reply_of($session, "SELECT zk_lock('$path')", op => 'create2', path => "^$path/");
		wait_until { $zk->children($path) == 6 } 'the node';
		$a->restart_worker;
		$a->reconnect($proxy);
	});

foreach my $fate (sort keys %fate)
{
	foreach my $dialect (@dialects)
	{
		subtest "a node is told from those of others, with names of the same form: $dialect, $fate" => sub {
			my $path = "/l/$dialect/" . ($fate =~ s/ /-/gr);
			write_as($dialect);
			my @theirs;
			foreach my $i (0 .. 2)
			{
				push @theirs, foreign($path, $dialect);
				# The server has heard of it, so that the session does not join the one before.
				$a->settle;
				$i < 2 ? $as[$i]->start_queued("SELECT zk_lock('$path')", $path) : $fate{$fate}->($as[$i], $path);
			}
			$a->wait_session;
			my @nodes = $zk->children($path);
			is($a->wait_queued($as[$_], $path)->{node}, $nodes[ 2 * $_ + 1 ], "session $_ has its node") foreach 0 .. 2;
			is(scalar @nodes, 6, 'there is no other');
			like($nodes[5], qr/0000000005$/, 'and was none');
			foreach my $i (0 .. 2)
			{
				ok($as[$i]->busy, $as[$i]->name . ' waits');
				$shell->delete($theirs[$i]);
				is($as[$i]->finish, 't', 'and is served after the foreigner before it');
				is($as[$i]->query("SELECT zk_unlock('$path')"), 't', 'unlocked') if $i < 2;
			}

			# Now its delete, with a foreigner behind it who must not be taken for ours.
			my $behind = foreign($path, $dialect);
			my $fault = $proxy->lose_reply(op => 'delete', path => "^$path/");
			is($as[2]->query("SELECT zk_unlock('$path')"), 't', 'unlocked');
			ok($proxy->fired($fault), 'the reply to the delete is lost');
			$a->wait_value("SELECT count(*) FROM zk_locks WHERE path = '$path'", 0);
			is_deeply([ map { "$path/$_" } $zk->children($path) ], [$behind], 'who came behind is there');
			$shell->delete($behind);
			$a->assert_clean($zk, $path);
		};
	}
}

subtest "a delete that is repeated leaves a node of the same name that is another's alone" => sub {
	# The path's node was deleted meanwhile, as Hive does, and sequences begin anew.
	my $path = '/l/again';
	write_as('hive');
	is($as[0]->query("SELECT zk_lock('$path')"), 't', 'a lock is held');
	my ($name) = $zk->children($path);
	# Not even the watch on the node tells of its end.
	$proxy->blackhole('replies');
	$as[0]->query_start("SELECT zk_unlock('$path')");
	wait_until { !$zk->children($path) } 'the node to be gone';
	$shell->delete($path);
	my $theirs = foreign($path, 'hive');
	is($theirs, "$path/$name", 'somebody else has a node with that name');
	my $before = $shell->stat($theirs)->{czxid};
	$a->cut_off($proxy);
	$proxy->heal;
	is($as[0]->finish, 't', 'unlocked');
	$a->wait_session;
	$a->wait_value("SELECT count(*) FROM zk_locks WHERE path = '$path'", 0);
	is(eval { $shell->stat($theirs)->{czxid} }, $before, 'and that is not deleted');
	$as[0]->start_waiting("SELECT zk_lock('$path')", $path);
	$shell->delete($theirs);
	is($as[0]->finish, 't', 'but respected');
	$as[0]->query("SELECT zk_unlock('$path')");
	$a->assert_clean($zk, $path);
};

subtest 'a node that is created again under its name is not the same lock' => sub {
	# It was held, is deleted with the path's, and created again by another run of this server.
	my $path = '/l/twin';
	is($as[0]->query("SELECT zk_lock('$path')"), 't', 'a lock is held');
	my ($name) = $zk->children($path);
	$as[1]->start_waiting("SELECT zk_lock('$path')", $path);
	# The worker is to hear of it when the path's node has gone as well.
	freeze(my $worker = $a->worker_pid);
	$shell->delete($path, recursive => 1);
	thaw($worker);
	is($as[1]->finish, 't', 'its node deleted, the next in line gets the lock');
	is_deeply([ $zk->children($path) ], [$name], 'under the same name');
	is($as[0]->try("SELECT zk_fencing_token('$path')")->{sqlstate}, '40001', 'the first has lost it');
	is($as[0]->query("SELECT zk_unlock('$path')"), 'f', 'as its unlock tells');
	is(scalar($zk->children($path)), 1, 'which does not take the node of the second');
	is($as[1]->query("SELECT zk_fencing_token('$path') > 0"), 't', 'who holds the lock');
	is($as[1]->query("SELECT zk_unlock('$path')"), 't', 'until it unlocks');
	$a->assert_clean($zk, $path);
};

is($a->session_id, $id, 'it was the same session all the time');
is($a->zk_session->{expirations}, 0, 'without an expiration');
done_clean($zk, $a, $b);
