# Copyright (c) 2026, zklock contributors
#
# Answers that take longer than the worker waits before it asks again, and a worker that is
# stopped while sessions wait for it.

use Zklock::Test;

my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '15s');
$a->value('CREATE TABLE t (i int)');

my $session = $a->session;
my $worker = $a->worker_pid;

subtest 'a commit is done although each check is answered late' => sub {
	$session->query('SET zklock.commit_guard = quorum');
	$session->query('BEGIN');
	$session->query("SELECT zk_xact_lock('/s/quorum')");
	$session->query('INSERT INTO t VALUES (1)');
	$proxy->delay(1500);
	$session->query_start('COMMIT');
	ok($session->result->{ok}, 'a commit is done although each check is answered after it was asked for again');
	$proxy->delay(0);
};

subtest 'a session that unlocks waits for the deletion, but not for a worker that is stopped' => sub {
	is($session->query("SELECT zk_lock('/s/unlock')"), 't', 'a lock is held');
	$proxy->hold_request_of($session, "SELECT zk_unlock('/s/unlock')", op => 'delete');
	ok($session->busy, 'who unlocks waits for the deletion');
	freeze($worker);
	my $asker = $a->session;
	$asker->query_start("SELECT zk_try_lock('/s/free')");
	is($session->finish, 't', 'but not for a worker that is stopped');
	my $result = $asker->result;
	is($result->{sqlstate}, '58030', 'nor does who wants to know whether a lock is free');
	like($result->{detail}, qr/^The connection to ZooKeeper server 127\.0\.0\.1:\d+ stands, but the session is not proved/,
		'and is told what is wrong');
	ok(!eval { $a->wait_session('connected', 1); 1 }, 'to be connected is not all that a test waits for');
	$asker->disconnect;
	thaw($worker);
	$proxy->heal;
	$a->wait_session;
};

subtest 'a lock is lost although no worker says so' => sub {
	is($session->query("SELECT zk_lock('/s/lost'), zk_lock('/s/late')"), 't|t', 'a lock is held');
	# Another one is granted to a session that is stopped before it hears of that.
	my $late = $a->session;
	$late->start_waiting("SELECT zk_lock('/s/late')", '/s/late');
	freeze($late->pid);
	is($session->query("SELECT zk_unlock('/s/late')"), 't', 'another one is handed over');
	$a->wait_holder($late, '/s/late');
	freeze($worker);
	is($a->wait_lock($session, 'lost', '/s/lost')->{granted}, 'f', 'it is lost, says zk_locks, and not granted any more');
	thaw($late->pid);
	foreach my $call ("zk_fencing_token('/s/lost')", "zk_lock('/s/lost')")
	{
		my $result = $session->try("SELECT $call");
		is($result->{sqlstate}, '40001', "lost for $call");
		is($result->{detail}, 'The ZooKeeper session was not proved to be alive for a session timeout.', 'and why');
	}
	my $unlock = $session->try("SELECT zk_unlock('/s/lost')");
	is($unlock->{text}, 'f', 'and for zk_unlock');
	like($unlock->{notices}[0], qr{lock on ZooKeeper path "/s/lost" was lost}, 'with a warning');
	thaw($worker);
	is($late->result->{sqlstate}, '40001', 'who hears too late that a lock was granted has lost it');
	$late->disconnect;
};

$_->disconnect foreach $session;
Zklock::Server->assert_clean($zk, [$a], map { "/s/$_" } qw(quorum unlock free lost late));
done_testing;
