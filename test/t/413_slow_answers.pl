# Copyright (c) 2026, zklock contributors
#
# Answers that take longer than is waited for before something is asked again, and a
# worker that is stopped while somebody waits for it.

use strict;
use warnings;
use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::ZooKeeper;

# Processes stopped with SIGSTOP must not stay so if the test dies.
my %stopped;
END { kill 'CONT', keys %stopped; }

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my $a = Zklock::Server->new('a', zookeeper => $proxy, conf => ["zklock.session_timeout = '15s'"]);
$a->value('CREATE TABLE t (i int)');

# ---- the check of zklock.commit_guard = quorum

my $session = $a->session;
$session->query('SET zklock.commit_guard = quorum');
$session->query('BEGIN');
$session->query("SELECT zk_xact_lock('/s/quorum')");
$session->query('INSERT INTO t VALUES (1)');
$proxy->delay(1500);
$session->query_start('COMMIT');
ok($session->result->{ok}, 'a commit is done although each check is answered after it was asked for again');
$proxy->delay(0);

# ---- who waits for a deletion

is($session->query("SELECT zk_lock('/s/unlock')"), 't', 'a lock is held');
my $fault = $proxy->hold_request(op => 'delete');
$session->query_start("SELECT zk_unlock('/s/unlock')");
$proxy->fired($fault);
ok($session->busy, 'who unlocks waits for the deletion');
my $worker = $a->worker_pid;
$stopped{$worker} = 1;
kill 'STOP', $worker;
is($session->finish, 't', 'but not for a worker that is stopped');
kill 'CONT', $worker;
delete $stopped{$worker};
$proxy->heal;
$session->disconnect;
Zklock::Server->assert_clean($zk, [$a], '/s/quorum', '/s/unlock');
done_testing;
