# Copyright (c) 2026, zklock contributors
#
# The ZooKeeper server that a database server is connected to is cut off from the others
# and goes on answering, while its leader ends the session. Seen from the leader, the session's
# node is never gone before the end of the lease that zk_session has shown, and no commit passes
# the guard once another server may have the lock.
#
# ZKLOCK_ROUNDS sets how often that is tried with each guard; default 6.

use Zklock::Test;
use Time::HiRes qw(time);
use Zklock::Cast qw(:DEFAULT clean node_of);
use Zklock::Shell;

# Servers notice each other's silence only after 12 s, sessions end after 4.
my $zk       = Zklock::ZooKeeper->ensemble(3, links => 1, syncLimit => 24);
my $leader   = $zk->leader;
my $follower = ($zk->followers)[0];
my @conf     = (conf => ["zklock.session_timeout = '4s'"]);
my $a        = Zklock::Server->new('a', zookeeper => $follower, @conf);
my $b        = Zklock::Server->new('b', zookeeper => $leader, @conf);
my $shell    = Zklock::Shell->new;
$shell->connect($leader->connect_string);
$a->value('CREATE TABLE t (i int)');

sub isolated($guard)
{
	my $path = "/i/$guard";
	on($a, $_)->query("SET zklock.commit_guard = $guard") foreach qw(holder writer);
	hold($a, 'holder', $path);
	my $node = "$path/" . node_of($a, 'holder');
	in_transaction($a, 'writer', "$path-xact", 'INSERT INTO t VALUES (0)');
	queue($a, 'waiter', $path);
	on($b, 'next');
	my ($holder, $writer, $waiter, $next) = @s{qw(holder writer waiter next)};
	$next->start_waiting("SELECT zk_lock(ARRAY['$path', '$path-xact'])");
	ok($holder->try('INSERT INTO t VALUES (1)')->{ok}, 'it can commit');

	# At any phase of the heartbeats and of the leader's pings.
	select undef, undef, undef, rand 1;
	$zk->isolate($follower);
	my ($deadline, $commits, $gone, $refused) = (0, 0, undef, undef);
	while ($next->busy && !defined $refused)
	{
		my ($now, $remaining) = (time, $a->value('SELECT extract(epoch FROM lease_remaining) FROM zk_session'));
		$deadline = $now + $remaining if $remaining > 0 && $now + $remaining > $deadline;
		# The lock is there when we begin, or it is not; what counts is when the commit is done.
		$holder->query_start('INSERT INTO t VALUES (1)');
		wait_until { $gone //= time if !$shell->exists($node); !$holder->busy || !$next->busy } 'a commit, or the lock elsewhere';
		last if $holder->busy;
		my $result = $holder->result;
		$result->{ok} ? $commits++ : ($refused = $result->{sqlstate});
	}
	ok($commits, 'it could commit for a while') if $guard eq 'lease';
	is($next->finish, 't', 'the leader ended the session: the other server has the locks');
	cmp_ok($deadline, '<', $gone // time, 'not before the lease was over');
	ok($waiter->busy, 'nor was anything granted');
	is($a->session->try("SELECT zk_try_lock('/i/free')")->{sqlstate}, '58030', 'who does not wait is told that ZooKeeper cannot be asked');

	$holder->query_start('INSERT INTO t VALUES (1)') unless $holder->busy || defined $refused;
	$refused //= $holder->result->{sqlstate};
	is($refused, '40001', 'a commit that is done after that is refused');
	is($writer->try('COMMIT')->{sqlstate}, '40001', 'as is that of the other transaction');
	is($a->value("SELECT count(*) FROM t WHERE i = 0"), 0, 'which has written nothing');

	$zk->rejoin($follower);
	$a->wait_session;
	is($next->query('SELECT zk_unlock_all() IS NOT NULL'), 't', 'the other server gives the locks back');
	is($waiter->finish, 't', 'who waited gets the lock when all is well again');
	is($waiter->query("SELECT zk_unlock('$path')"), 't', 'and releases it');
	is($holder->try("SELECT zk_unlock('$path')")->{text}, 'f', 'the holder is told');
	clean($zk, [ $a, $b ], $path, "$path-xact", '/i/free');
	return;
}

foreach my $round (1 .. $ENV{ZKLOCK_ROUNDS} || 6)
{
	subtest "behind an isolated follower nothing is committed once another server has the locks, round $round" => sub {
		isolated($_) foreach qw(lease quorum);
	};
}

$shell->stop;
done_testing;
