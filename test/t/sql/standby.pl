# Copyright (c) 2026, zklock contributors
#
# A hot standby has a worker of its own and takes part like any other server. It keeps its
# locks when it is promoted.

use Zklock::Test;

my ($zk, $primary) = cast('primary', allows_streaming => 1);

# A lock held while the base backup is made, and while the standby starts, is the
# primary's still: a copied data directory must not bring its session along.
my $holder = $primary->session;
is($holder->query(q{SELECT zk_lock('/t/backup')}), 't', 'the primary locks');
my $standby = Zklock::Server->standby('standby', primary => $primary, zookeeper => $zk);

subtest 'a standby has a ZooKeeper session of its own' => sub {
	is($standby->value('SELECT pg_is_in_recovery()'), 't', 'the standby is one');
	isnt($standby->session_id, $primary->session_id, 'it has a ZooKeeper session of its own');
	is($primary->zk_session->{expirations}, '0', 'the primary keeps its');
	is($primary->lock_count(q{path = '/t/backup' AND state = 'held'}), '1', 'and its lock');
};

my $s1 = $standby->session;
my $s2 = $standby->session;

subtest 'a standby locks with a worker of its own' => sub {
	is($s1->query(q{SELECT zk_try_lock('/t/backup')}), 'f', 'which the standby does not get');
	is($holder->query(q{SELECT zk_unlock('/t/backup')}), 't', 'the primary unlocks');

	is($standby->value(q{SELECT count(*) FROM pg_stat_activity a JOIN zk_session s ON a.pid = s.worker_pid
		WHERE backend_type LIKE '%zklock%'}), '1', 'the standby runs a worker');
};

my $p = $primary->session;
sub excluded($path, $name)
{
	return is($p->query("SELECT zk_try_lock('$path')"), 'f', "the primary does not get what the standby has: $name");
}
sub free($path, $name)
{
	return is($p->query("SELECT zk_lock('$path', '20 s') AND zk_unlock('$path')"), 't', "the primary gets it after $name");
}

subtest 'every function works on a standby' => sub {
	foreach my $case (
		[ q{zk_lock('/t/a')}, q{zk_unlock('/t/a')} ],
		[ q{zk_try_lock('/t/a')}, q{zk_unlock_all() IS NOT NULL} ],
		[ q{zk_lock(ARRAY['/t/b', '/t/a'])}, q{zk_unlock(ARRAY['/t/a', '/t/b'])} ],
		[   q{zk_semaphore_acquire('/t/sem', 1)}, q{zk_semaphore_release('/t/sem')},
			q{zk_semaphore_acquire('/t/sem', 1, '0')} ])
	{
		my ($take, $give, $try) = @$case;
		$try //= q{zk_try_lock('/t/a')};
		is($s1->query("SELECT $take"), 't', $take);
		is($p->query("SELECT $try"), 'f', 'the primary does not get it');
		like($s1->query(q{SELECT zk_fencing_token('/t/a')}), qr/^[1-9]\d+$/, 'zk_fencing_token') if $take =~ /lock/;
		is($s1->query("SELECT $give"), 't', $give);
		is($p->query("SELECT $try"), 't', 'which returns when it is free');
		$p->query('SELECT zk_unlock_all()');
	}

	is($s1->query(q{SELECT zk_claim('/t/claim', '2026-11-22')}), 't', 'zk_claim');
	is($p->query(q{SELECT zk_claim('/t/claim', '2026-11-22')}), 'f', 'the primary does not get the slot');

	foreach my $end (qw(COMMIT ROLLBACK))
	{
		$s1->query('BEGIN');
		is($s1->query(q{SELECT zk_xact_lock('/t/a') AND zk_xact_lock(ARRAY['/t/b', '/t/c']) AND zk_try_xact_lock('/t/d')}),
			't', 'transaction-level locks');
		excluded("/t/$_", 'a transaction-level lock') foreach qw(a b c d);
		$s1->query($end);
		free("/t/$_", $end) foreach qw(a b c d);
	}
	$s1->query('BEGIN');
	$s1->query('SAVEPOINT s');
	$s1->query(q{SELECT zk_xact_lock('/t/a')});
	$s1->query('ROLLBACK TO s');
	free('/t/a', 'ROLLBACK TO SAVEPOINT');
	$s1->query('COMMIT');
	$s1->query(q{SELECT zk_lock('/t/a')});
	$s1->query('DISCARD ALL');
	free('/t/a', 'DISCARD ALL');
	$s2->query(q{SELECT zk_lock('/t/a')});
	is($s1->query(q{SELECT zk_try_lock('/t/a')}), 'f', 'sessions of the standby exclude each other');
	$s2->vanish;
	free('/t/a', 'the end of the session');
};

subtest 'sessions of primary and standby wait for each other' => sub {
	$p->query(q{SELECT zk_lock('/t/a')});
	$s1->start_waiting(q{SELECT zk_lock('/t/a')});
	$p->query(q{SELECT zk_unlock('/t/a')});
	is($s1->finish, 't', 'the standby waits for the primary');
	$p->start_waiting(q{SELECT zk_lock('/t/a')});
	$s1->query(q{SELECT zk_unlock('/t/a')});
	is($p->finish, 't', 'the primary waits for the standby');
	is($s1->query(q{SELECT zk_lock('/t/a', '100 ms')}), 'f', 'a timeout on the standby');
	$s1->start_waiting(q{SELECT zk_lock('/t/a')});
	is($s1->cancelled, '57014', 'a cancel on the standby');
	$p->query(q{SELECT zk_unlock('/t/a')});
};

subtest 'a promotion costs nobody a lock' => sub {
	$s1->query(q{SELECT zk_lock('/t/session')});
	$s1->query('BEGIN');
	$s1->query(q{SELECT zk_xact_lock('/t/xact')});
	my $token = $s1->query(q{SELECT zk_fencing_token('/t/session')});
	$s2 = $standby->session;
	$p->query(q{SELECT zk_lock('/t/wait')});
	$s2->start_waiting(q{SELECT zk_lock('/t/wait')});
	my $worker  = $standby->worker_pid;
	my $session = $standby->session_id;

	$standby->promote;
	is($standby->value('SELECT pg_is_in_recovery()'), 'f', 'the standby is promoted');
	is($standby->worker_pid, $worker, 'its worker runs on');
	is($standby->session_id, $session, 'with the same ZooKeeper session');
	is($s1->query(q{SELECT zk_fencing_token('/t/session')}), $token, 'a session-level lock is held on');
	excluded('/t/session', 'a session-level lock from before promotion');
	excluded('/t/xact', 'a transaction-level lock from before promotion');
	ok($s2->busy, 'a wait goes on');
	$p->query(q{SELECT zk_unlock('/t/wait')});
	is($s2->finish, 't', 'until it gets the lock');

	# The transaction began when nothing could be written, and stays like that.
	is($s1->try('CREATE TABLE t ()')->{sqlstate}, '25006', 'the transaction from before promotion is read-only');
	is($s1->query('ROLLBACK; SELECT 1'), '1', 'and ends');
	free('/t/xact', 'its end');
	$s1->query('BEGIN');
	$s1->query('CREATE TABLE t ()');
	is($s1->query(q{SELECT zk_xact_lock('/t/xact')}), 't', 'a writing transaction locks');
	excluded('/t/xact', 'a transaction-level lock after promotion');
	$s1->query('COMMIT');
	free('/t/xact', 'its commit');
	$_->query('SELECT zk_unlock_all()') foreach $s1, $s2;
	free('/t/session', 'zk_unlock_all');
};

done_clean($zk, $primary, $standby);
