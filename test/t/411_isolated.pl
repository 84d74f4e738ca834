# Copyright (c) 2026, zklock contributors
#
# The ZooKeeper server that a database server is connected to is cut off from the others
# and goes on answering, while its leader ends the session: no commit passes the guard
# once another server may have the lock.

use Zklock::Test;
use Time::HiRes qw(time);

# Servers notice each other's silence only after 12 s, sessions end after 4.
my $zk       = Zklock::ZooKeeper->ensemble(3, links => 1, syncLimit => 24);
my $leader   = $zk->leader;
my $follower = ($zk->followers)[0];
my @conf     = (conf => ["zklock.session_timeout = '4s'"]);
my $a        = Zklock::Server->new('a', zookeeper => $follower, @conf);
my $b        = Zklock::Server->new('b', zookeeper => $leader, @conf);
$a->value('CREATE TABLE t (i int)');

subtest 'behind an isolated follower nothing is committed once another server has the locks' => sub {
	foreach my $guard (qw(lease quorum))
	{
		my ($holder, $writer, $waiter, $next) = ($a->session, $a->session, $a->session, $b->session);
		my $path = "/i/$guard";
		$_->query("SET zklock.commit_guard = $guard") foreach $holder, $writer;
		is($holder->query("SELECT zk_lock('$path')"), 't', "$guard: a session of the follower's client holds a lock");
		$writer->query('BEGIN');
		$writer->query("SELECT zk_xact_lock('$path-xact')");
		$writer->query('INSERT INTO t VALUES (0)');
		$waiter->start_waiting("SELECT zk_lock('$path')");
		$next->start_waiting("SELECT zk_lock(ARRAY['$path', '$path-xact'])");
		ok($holder->try('INSERT INTO t VALUES (1)')->{ok}, 'it can commit');

		$zk->isolate($follower);
		my ($last_commit, $commits, $refused) = (0, 0, undef);
		while ($next->busy && !defined $refused)
		{
			# The lock is there when we begin, or it is not; what counts is when the commit is done.
			$holder->query_start('INSERT INTO t VALUES (1)');
			wait_until { !$holder->busy || !$next->busy } 'a commit, or the lock elsewhere';
			last if $holder->busy;
			my $result = $holder->result;
			if ($result->{ok})
			{
				$last_commit = time;
				$commits++;
			}
			else
			{
				$refused = $result->{sqlstate};
			}
		}
		ok($commits, 'it could commit for a while') if $guard eq 'lease';
		is($next->finish, 't', 'the leader ended the session: the other server has the locks');
		my $granted = time;
		cmp_ok($last_commit, '<', $granted, 'no commit passed after that');
		ok($waiter->busy, 'nor was anything granted');
		is($a->session->try("SELECT zk_try_lock('/i/free')")->{sqlstate}, '58030', 'who does not wait is told that ZooKeeper cannot be asked');

		$refused = $holder->result->{sqlstate} unless defined $refused;
		is($refused, '40001', 'the commit that waited is refused');
		is($writer->try('COMMIT')->{sqlstate}, '40001', 'as is that of the other transaction');
		is($a->value("SELECT count(*) FROM t WHERE i = 0"), 0, 'which has written nothing');

		$zk->rejoin($follower);
		$a->wait_session;
		is($next->query('SELECT zk_unlock_all() IS NOT NULL'), 't', 'the other server gives the locks back');
		is($waiter->finish, 't', 'who waited gets the lock when all is well again');
		is($waiter->query("SELECT zk_unlock('$path')"), 't', 'and releases it');
		is($holder->try("SELECT zk_unlock('$path')")->{text}, 'f', 'the holder is told');
		$_->disconnect foreach $holder, $writer, $waiter, $next;
		Zklock::Server->assert_clean($zk, [ $a, $b ], $path, "$path-xact", '/i/free');
	}
};

done_testing;
