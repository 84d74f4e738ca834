# Copyright (c) 2026, zklock contributors
#
# Heartbeats, which prove that the session lives, are lost with their connections, or held
# up. The lease goes on or comes back, and nothing is counted wrongly meanwhile.

use Zklock::Test;
use Zklock::Cast;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '8s');
$a->value('CREATE TABLE t (i int)');
my $id     = $a->session_id;
my $worker = $a->worker_pid;

hold($a, 'holder', '/h/held');
queue($a, 'local', '/h/held');
queue($b, 'remote', '/h/held');
hold($b, 'foreigner', '/h/foreign');
queue($a, 'behind', '/h/foreign');
my $before = holdings($a);

sub fresh_lease { $a->wait_value("SELECT lease_remaining > '3s' FROM zk_session", 't'); return; }

sub undisturbed($what)
{
	fresh_lease();
	is($a->session_id, $id, "$what: the session is the same");
	is_deeply(holdings($a), $before, 'holders have what they had');
	ok($s{$_}->busy, "$_ waits") foreach qw(local remote behind);
	return;
}

subtest 'heartbeats are lost, many at once and a few now and then' => sub {
	foreach my $round (1, 2)
	{
		$proxy->reset_counts;
		$proxy->hold_reply(op => 'multi', times => 0);
		wait_until { ($proxy->counts->{multi} || 0) >= 32 } 'as many heartbeats as may be outstanding';
		$proxy->clear;
		$proxy->drop;
		undisturbed("all heartbeats are lost with their connection, round $round");
	}
	foreach my $lose (qw(lose_reply lose_request))
	{
		my $reconnects = $a->zk_session->{reconnects};
		my $fault = $proxy->$lose(op => 'multi', nth => $_) foreach 1 .. 3;
		wait_until { $a->zk_session->{reconnects} >= $reconnects + 3 } 'three to be lost';
		$proxy->clear;
		undisturbed("$lose, now and then");
	}
};

foreach my $how ([ hold_reply => () ], [ hold_request => () ], [ refuse => (code => -127) ])
{
	my ($hold, @more) = @$how;
	subtest "without heartbeats locks are suspended, and come back: $hold" => sub {
		in_transaction($a, 'xact', '/h/xact', 'INSERT INTO t VALUES (1)');
		on($a, 'hander')->query("SELECT zk_lock('/h/hand')");
		queue($a, 'handed', '/h/hand');
		fresh_lease();
		$proxy->$hold(op => 'multi', times => 0, @more);
		ok($a->wait_lock($s{holder}, 'suspended', '/h/held'), "$hold: without heartbeats the lock is suspended");
		$s{xact}->query_start('COMMIT');
		$a->wait_event($s{xact}, 'guard');
		fails(on($a, 'trier')->try("SELECT zk_try_lock('/h/free')"), '58030', 'who does not wait is told');
		fails($s{trier}->try("SELECT zk_lock('/h/held', '50ms')"), '58030', 'so is who does not wait for long');
		# The worker goes on with what needs no proof.
		$s{hander}->query_start("SELECT zk_unlock('/h/hand')");
		$a->wait_value('SELECT count(*) FROM zk_locks WHERE pid = ' . $s{hander}->pid, 0);
		queue($a, 'canceller', '/h/foreign');
		is($s{canceller}->cancelled, '57014', 'a wait is cancelled');
		is(($a->locks('pid = ' . $s{handed}->pid))[0]{state}, 'waiting', 'what a holder gives back is not given to anybody yet');
		$proxy->clear;
		$proxy->heal;
		ok($s{xact}->result->{ok}, 'the commit goes on with the next heartbeats');
		ok($s{hander}->result->{ok}, 'what was given back is free');
		is($s{handed}->finish, 't', 'and the next one\'s');
		$s{handed}->query("SELECT zk_unlock('/h/hand')");
		undisturbed($hold);
	};
}

# Each of the first heartbeats on a new connection
foreach my $nth (1 .. 4)
{
	subtest "one of the first heartbeats on a connection is held up: number $nth" => sub {
		my $fault = $proxy->hold_reply(op => 'multi', nth => $nth);
		$proxy->drop;
		$proxy->fired($fault);
		$proxy->heal;
		undisturbed("heartbeat $nth of a connection held up");
	};
}

subtest 'heartbeats are lost at each step of a transaction whose guard writes' => sub {
	$s{xact}->query('SET zklock.commit_guard = quorum');
	foreach my $lose (qw(lose_reply lose_request))
	{
		foreach my $step ([ lock => '' ], [ write => '' ], [ commit => '^/h/step' ], [ unlock => '' ])
		{
			my ($name, $path) = @$step;
			my $fault;
			my $strike = sub {
				return unless $name eq $_[0];
				$fault = $proxy->$lose(op => 'multi', path => $path, any => 1);
				# Heartbeats come by themselves, a check at commit.
				$proxy->fired($fault) unless $path;
			};
			$strike->('lock');
			$s{xact}->query('BEGIN');
			is($s{xact}->query("SELECT zk_xact_lock('/h/step')"), 't', "$lose, $name: locked");
			$strike->('write');
			$s{xact}->query('INSERT INTO t VALUES (2)');
			$strike->('commit');
			ok($s{xact}->try('COMMIT')->{ok}, 'committed');
			$strike->('unlock');
			$proxy->fired($fault);
			wait_until { !$zk->children('/h/step') } 'the lock to be free';
		}
	}
	undisturbed('after all this');
};

subtest 'the queue goes on to its end' => sub {
	hand_on('/h/held', qw(holder local remote));
	hand_on('/h/foreign', qw(foreigner behind));
};

is($a->worker_pid, $worker, 'the worker has lived through it');
done_clean($zk, $a, $b);
