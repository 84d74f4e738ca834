# Copyright (c) 2026, zklock contributors
#
# The worker ends again and again during traffic, together with its server, by kill -9, or
# has never started.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Cast qw(:DEFAULT clean);
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk = Zklock::ZooKeeper->standalone;
my $a  = Zklock::Server->new('a', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'"]);
my $b  = Zklock::Server->new('b', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'"]);

subtest 'sessions see no error while the worker is terminated again and again' => sub {
	my $id     = $a->session_id;
	foreach my $server ($a, $b)
	{
		$server->value('CREATE TABLE stop (done int)');
		$server->value('CREATE SEQUENCE rounds');
	}
	my $traffic = q{
		DO $$
		BEGIN
			WHILE NOT EXISTS (SELECT FROM stop) LOOP
				PERFORM zk_lock('/w/traffic');
				-- Only one session of this server may be here.
				IF NOT pg_try_advisory_lock(1) THEN
					RAISE EXCEPTION 'not exclusive';
				END IF;
				PERFORM nextval('rounds');
				PERFORM pg_advisory_unlock(1);
				PERFORM zk_unlock('/w/traffic');
			END LOOP;
		END $$};
	my @sessions = ((map { $a->session } 1 .. 6), (map { $b->session } 1 .. 3));
	$_->query_start($traffic) foreach @sessions;
	my $rounds = 'SELECT last_value FROM rounds';
	foreach my $i (1 .. 6)
	{
		my @start = map { $_->value($rounds) } $a, $b;
		wait_until { $a->value($rounds) > $start[0] + 20 && $b->value($rounds) > $start[1] + 20 }
		  sub { "traffic after restart @{[$i - 1]}\n" . $a->describe_locks . $b->describe_locks };
		my $log_mark = $a->log_mark;
		my $pid = $a->worker_pid;
		$a->restart_worker;
		$a->wait_session;
		$a->assert_log($log_mark, qr/\(PID $pid\) exited with exit code 1/,
			"restart $i of the worker under load");
	}
	my $start = $a->value($rounds);
	wait_until { $a->value($rounds) > $start + 20 } 'traffic after the last restart';
	$_->value('INSERT INTO stop VALUES (1)') foreach $a, $b;
	foreach my $s (@sessions)
	{
		my $result = $s->result;
		ok($result->{ok}, $s->name . ' has seen no error') or diag $result->{error};
	}
	$_->disconnect foreach @sessions;
	is($a->session_id, $id, 'all these workers have had one ZooKeeper session');
	Zklock::Server->assert_clean($zk, [ $a, $b ], '/w/traffic');
};

subtest "a server that stops ends its session at once, not after the session's timeout" => sub {
	my $id     = $a->session_id;
	hold($a, 'holder', '/w/stop');
	queue($b, 'heir', '/w/stop');
	my $log_mark = $a->log_mark;
	$a->stop('fast');
	is($s{heir}->finish, 't', 'a server that stops leaves its locks to others');
	unlike(slurp_file($zk->log_file), qr/Expiring session $id,/, 'and does not let its session time out');
	$a->start;
	$a->wait_session;
	isnt($a->session_id, $id, 'and begins a new session');
	$a->assert_log($log_mark, qr/zklock worker" \(PID \d+\) exited with exit code 1/,
		'the worker exits with 1 then, too');
	hold($a, 'again', '/w/stop2');
	clean($zk, [ $a, $b ], '/w/stop', '/w/stop2');
};

my $c = Zklock::Server->new('c', zookeeper => $zk, conf => ["zklock.session_timeout = '1500ms'"]);

subtest 'kill -9 of the worker ends all sessions of the server, as that of any process does' => sub {
	hold($c, 'holder', '/w/crash');
	queue($c, 'waiter', '/w/crash');
	queue($b, 'heir', '/w/crash');
	my $id = $c->session_id;
	kill 'KILL', $c->worker_pid;
	my $result = $s{waiter}->result;
	ok(!$result->{ok} && $result->{severity} eq 'FATAL', 'a waiting client is disconnected')
	  or diag explain $result;
	wait_until { !$s{holder}->try('SELECT 1')->{ok} } 'the holding client to be disconnected';
	pass('a holding one as well');
	is($s{heir}->finish, 't', 'another server gets the lock');
	wait_until { eval { $c->value('SELECT 1') } } 'the server to be back';
	$c->wait_session;
	isnt($c->session_id, $id, 'the server is back with a new session');
	is($c->lock_count, 0, 'it holds nothing');
	delete $s{$_} foreach qw(holder waiter);
	queue($c, 'newcomer', '/w/crash');
	$s{heir}->query("SELECT zk_unlock('/w/crash')");
	is($s{newcomer}->finish, 't', 'and takes part again');
	all_disconnect();
	Zklock::Server->assert_clean($zk, [ $a, $b, $c ], '/w/crash');
};

subtest 'a server without room for a worker says so' => sub {
	my $none = Zklock::Server->new(
		'none',
		zookeeper => $zk,
		connect   => 0,
		conf      => ['max_worker_processes = 0']);
	is($none->zk_session->{state}, 'no worker', 'a server without worker processes has no worker');
	my @sessions = map { $none->session } 1 .. 3;
	$sessions[0]->query_start("SELECT zk_lock('/w/none')");
	$sessions[1]->query_start("SELECT zk_try_lock('/w/none')");
	$sessions[2]->query_start("SELECT zk_lock('/w/none', '1min')");
	foreach my $i (0 .. 2)
	{
		my $call = (qw(zk_lock zk_try_lock), 'zk_lock with a timeout')[$i];
		my $result = $sessions[$i]->result;
		is($result->{sqlstate}, '55000', "$call fails") or diag explain $result;
		like($result->{hint} || '', qr/max_worker_processes/, 'and says what to do');
	}
	$_->disconnect foreach @sessions;
	# Given-up entries cannot be freed by a worker that does not exist.
	$none->stop;
};

unlike(slurp_file($_->logfile), qr/zklock worker" \(PID \d+\) exited with exit code (?!1\b)|zklock worker.* PANIC/,
	$_->name . ': no worker has ever left with another exit code than 1')
  foreach $a, $b, $c;

done_testing;
