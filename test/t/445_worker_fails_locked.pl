# Copyright (c) 2026, zklock contributors
#
# The worker fails while it holds an LWLock: it lets go of it, and the next one goes on.
#
# At its exit the worker writes once more what zk_session shows, under the same lock. If
# it waited for itself there, no new worker would start, and zk_session would hang.

use strict;
use warnings;

use Test::More;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};

my $zk = Zklock::ZooKeeper->standalone;
my $a  = Zklock::Server->new(
	'a',
	zookeeper => $zk,
	conf      => ["zklock.session_timeout = '20s'"],
	faults    => '');

# Read from the log: a query for it would wait for the lock.
sub failures
{
	my ($mark) = @_;
	return scalar(() = $a->log_since($mark) =~ /worker ERROR:  fault: fail-status/g);
}

subtest 'a worker that fails while it holds the lock of zk_session ends, again and again' => sub {
	my $id     = $a->session_id;
	my $worker = $a->worker_pid;
	my ($holder, $waiter) = map { $a->session(name => $_) } qw(holder waiter);
	is($holder->query("SELECT zk_lock('/l')"), 't', 'there is a holder');
	my $token = $holder->query("SELECT zk_fencing_token('/l')");
	$waiter->query_start("SELECT zk_lock('/l')");
	$a->wait_queued($waiter);

	$a->set_faults('fail-status');
	my $mark = $a->log_mark;
	is($a->value("SELECT pg_terminate_backend($worker)"), 't', 'the next worker will fail');
	wait_until { failures($mark) >= 2 } 'workers to fail with fail-status, one after the other';
	$a->set_faults('');

	$a->wait_session;
	is($a->session_id, $id, 'the ZooKeeper session is the same');
	is($holder->query("SELECT zk_fencing_token('/l')"), $token, 'the holder has its token');
	ok($waiter->busy, 'the waiter waits');
	is($holder->query("SELECT zk_unlock('/l')"), 't', 'the holder lets go');
	is($waiter->finish, 't', 'the waiter has the lock');
	$_->disconnect foreach $holder, $waiter;
};

Zklock::Server->assert_clean($zk, [$a], '/l');
done_testing;
