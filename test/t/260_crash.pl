# Copyright (c) 2026, zklock contributors
#
# A database server crashes, and when it starts again it ends the ZooKeeper session that it
# left behind, so that others get the locks at once. Session timeouts here are so long that
# nothing else can explain it.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Cast;
use Zklock::Crash qw(:all);
use Zklock::Proxy;
use Zklock::Server;
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone(maxSessionTimeout => 600000);
my $proxy = Zklock::Proxy->start($zk);
my @conf  = ("zklock.session_timeout = '10min'", 'log_min_messages = debug1', 'autovacuum = off');
my $a = Zklock::Server->new('a', zookeeper => $proxy, conf => \@conf, allows_streaming => 1);
my $b = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
Zklock::Crash::cast($zk, $a, $b);

my $file = $a->session_file;

subtest 'the session file names the session that a server has' => sub {
	my $id   = $a->session_id;
	ok(-f $file, 'there is a session file');
	is((stat $file)[2] & 07777, 0600, 'for its owner only');
	like(slurp_file($file), qr/^session $id$/m, 'with the id of the session');
	my $inode = (stat $file)[1];
	$a->restart_worker;
	$a->wait_session;
	is((stat $file)[1], $inode, 'a new worker that continues the session leaves it alone');
	$a->expire_session($zk);
	$a->wait_value("SELECT state = 'connected' AND session_id <> '$id' FROM zk_session", 't');
	$id = $a->session_id;
	like(slurp_file($file), qr/^session $id$/m, 'a new session is written into it');
	$a->restart;
	$a->wait_session;
	isnt($a->session_id, $id, 'a restart begins a new session');
	unlike($a->log_since(0), qr/left behind/, 'nothing has been left behind so far');
};

my %crash = (
	'kill -9 of a backend' => sub { kill 'KILL', on($a, 'victim')->pid; },
	'kill -9 of the worker' => sub { kill 'KILL', $a->worker_pid; },
	'immediate shutdown' => sub { $a->stop('immediate'); $a->start; },
	'kill -9 of the postmaster' => sub { $a->kill9; $a->start_again; });

foreach my $name (sort keys %crash)
{
	subtest "after a crash the session left behind is ended: $name" => sub {
		my $id = set_up();
		my $mark = $a->log_mark;
		$crash{$name}->();
		is($s{heir}->finish, 't', "$name: another server gets the lock");
		$a->wait_session;
		isnt($a->session_id, $id, 'the server is back with a session of its own');
		$a->assert_log($mark, qr/LOG:  ended ZooKeeper session $id, which had been left behind/,
			'and tells what it did');
		is($a->lock_count, 0, 'it holds nothing');
		queue($a, 'again', $path);
		$s{heir}->query("SELECT zk_unlock('$path')");
		is($s{again}->finish, 't', 'and takes part again');
		tear_down();
	};
}

subtest 'a session left behind that is over already does no harm' => sub {
	my $id = set_up();
	$a->stop('immediate');
	$zk->shell->expire_session($id);
	is($s{heir}->finish, 't', 'the session of a stopped server is ended by someone else');
	my $mark = $a->log_mark;
	$a->start;
	$a->wait_session;
	$a->assert_log($mark, qr/session $id, which had been left behind, is over/, 'which its successor finds out');
	no_worker_failed($a, $mark, 'and goes on');
	tear_down();
};

subtest 'the session left behind is ended when ZooKeeper can be reached again' => sub {
	my $id = set_up();
	$a->stop('immediate');
	$proxy->cut;
	$a->start;
	$a->wait_session('connecting');
	is($a->zk_session->{session_id}, undef, 'the session left behind is not shown as our own');
	on($a, 'waiter')->query_start("SELECT zk_lock('$path')");
	$a->wait_lock($s{waiter}, 'waiting');
	$a->restart_worker;
	pass('without ZooKeeper, the worker can be restarted');
	$a->stop('fast');
	ok(-e $file, 'and the server be stopped: the session is still known');
	$a->start;
	on($a, 'waiter2')->query_start("SELECT zk_lock('$path')");
	$a->wait_lock($s{waiter2}, 'waiting');
	$proxy->heal;
	is($s{heir}->finish, 't', 'when ZooKeeper is back, the session left behind is ended');
	$s{heir}->query("SELECT zk_unlock('$path')");
	is($s{waiter2}->finish, 't', 'and who waits here is served in the new one');
	isnt($a->session_id, $id, 'which is another');
	tear_down();
};

foreach my $fault (qw(lose_request lose_reply))
{
	subtest "the session left behind is ended although there is a fault: $fault" => sub {
		my $id = set_up();
		$a->stop('immediate');
		my $mark = $a->log_mark;
		my $lost = $proxy->$fault(op => 'closeSession', any => 1);
		$a->start;
		$proxy->fired($lost);
		is($s{heir}->finish, 't', "$fault: the session left behind is ended all the same");
		$a->wait_log(qr/LOG:  ended ZooKeeper session $id, which had been left behind/, $mark);
		$a->wait_session;
		tear_down();
	};
}

my $servers = $a->value('SHOW zklock.servers');

subtest 'the session left behind is ended when the names of servers can be resolved again' => sub {
	my $id = set_up();
	$a->stop('immediate');
	$a->append_conf('postgresql.conf', "zklock.servers = 'no-such-host.invalid:2181'");
	$a->start;
	$a->wait_session('down');
	is_taken($id, 'without a server name that resolves nothing happens');
	$a->set_conf('zklock.servers' => $servers);
	is($s{heir}->finish, 't', 'with one the session left behind is ended');
	$a->wait_session;
	tear_down();
};

subtest 'the session left behind is ended with another chroot' => sub {
	$zk->shell->create('/chroot');
	my $id = set_up();
	$a->stop('immediate');
	$a->append_conf('postgresql.auto.conf', "zklock.servers = '$servers/chroot'");
	$a->start;
	is($s{heir}->finish, 't', 'with another chroot as well');
	$a->wait_session;
	$a->set_conf('zklock.servers' => $servers);
	tear_down();
	$a->restart;
	$a->wait_session;
};

my $auth_file = $a->data_dir . '/auth';

subtest 'the session left behind is ended with credentials' => sub {
	append_to_file($auth_file, "digest:a:b\n");
	chmod 0600, $auth_file;
	my $id = set_up();
	$a->stop('immediate');
	$a->append_conf('postgresql.auto.conf', "zklock.auth_file = '$auth_file'");
	$a->start;
	is($s{heir}->finish, 't', 'with credentials as well');
	tear_down();
};

subtest 'the session left behind is ended with credentials that cannot be read' => sub {
	$a->wait_session;
	my $id = set_up();
	$a->stop('immediate');
	unlink $auth_file;
	$a->start;
	is($s{heir}->finish, 't', 'with credentials that cannot be read as well');
	$a->wait_session('down');
	pass('although without them there is no new one');
	$a->set_conf('zklock.auth_file' => '');
	$a->wait_session;
	tear_down();
};

subtest 'the session left behind is ended after credentials that are refused' => sub {
	# ZooKeeper does not talk to who shows wrong ones.
	append_to_file($auth_file, "nosuchscheme:x\n");
	chmod 0600, $auth_file;
	my $id = set_up();
	$a->stop('immediate');
	$a->append_conf('postgresql.auto.conf', "zklock.auth_file = '$auth_file'");
	my $mark = $a->log_mark;
	$a->start;
	$a->wait_session('authentication failed');
	pass('with credentials that are refused, the state says so');
	$a->set_conf('zklock.auth_file' => '');
	$a->wait_session;
	unlike($a->log_since($mark), qr/exited with exit code (?!1\b)|PANIC/, 'no worker has failed over it');
	is($s{heir}->finish, 't', 'without them the session left behind could be ended');
	tear_down();
};

Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
done_testing;
