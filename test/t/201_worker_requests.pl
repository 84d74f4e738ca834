# Copyright (c) 2026, zklock contributors
#
# The worker is terminated with a request to ZooKeeper under way.
#
# The worker that sent it will never see the reply. The next one knows from shared memory
# what may exist. It has a connection of its own, past what is held back in the proxy.

use Zklock::Test;
use Zklock::Cast;

my ($zk, $proxy, $b, $d) = cast('b d', proxied => 'd', b => { timeout => '20s' }, d => { timeout => '60s' });

foreach my $hold (qw(hold_reply hold_request))
{
	foreach my $op (qw(create2 createContainer getChildren))
	{
		subtest "a worker is lost with $op under way ($hold): one of two is cancelled, the other gets the lock" => sub {
			my $path = "/w/under-way-$hold-$op";
			on($d, $_) foreach qw(canceller asker);
			my $fault = $proxy->$hold(op => $op, path => "^$path");
			queue($d, $_, $path) foreach qw(canceller asker);
			$proxy->fired($fault);
			my $old = $d->worker_away;
			is($s{canceller}->cancelled, '57014', 'a request is cancelled meanwhile');
			$d->worker_back($old);
			is($s{asker}->finish, 't', 'the lock is granted');
			$proxy->heal;
			wait_until { $zk->children($path) == 1 } "one node to be left in $path";
			$d->one_node($zk, $path, 'with one node, which is known');
			is($s{asker}->query("SELECT zk_unlock('$path')"), 't', 'it is given back');
			Zklock::Server->assert_clean($zk, [ $b, $d ], $path);
		};
	}

	subtest "a worker is lost with getData under way ($hold): the lock is granted once" => sub {
		my $path = "/w/under-way-$hold";
		hold($b, 'foreigner', $path);
		on($d, $_) foreach qw(asker canceller);
		my $fault = $proxy->$hold(op => 'getData', path => "^$path");
		queue($d, $_, $path) foreach qw(canceller asker);
		$proxy->fired($fault);
		my $old = $d->worker_away;
		is($s{canceller}->cancelled, '57014', 'a request is cancelled meanwhile');
		$d->worker_back($old);
		$d->wait_waiting($s{asker}, $path);
		wait_until { $zk->children($path) == 2 } 'the waiter to have one node';
		$s{foreigner}->hands_over($path, $s{asker}, 'the lock is granted');
		$proxy->heal;
		wait_until { $zk->children($path) == 1 } "one node to be left in $path";
		$d->one_node($zk, $path, 'with one node, which is known');

		# The node of one who gave up goes although it is not its turn.
		queue($b, 'foreigner', $path);
		is($s{asker}->query("SELECT zk_unlock('$path')"), 't', 'it is given back');
		is($s{foreigner}->finish, 't', 'and goes to the next');
		queue($d, 'asker', $path);
		wait_until { $zk->children($path) == 2 } 'the waiting node';
		$fault = $proxy->$hold(op => 'delete', path => "^$path");
		$s{asker}->cancel;
		$s{asker}->result;
		$proxy->fired($fault);
		$old = $d->worker_away;
		$d->worker_back($old);
		wait_until { $zk->children($path) == 1 } 'the cancelled node to go';
		$proxy->heal;
		$s{foreigner}->query("SELECT zk_unlock('$path')");
		Zklock::Server->assert_clean($zk, [ $b, $d ], $path);
	};
}

subtest 'a call that must not wait is answered also if the next worker finds no ZooKeeper' => sub {
	on($d, 'trier');

	# The workers before, each gone after a moment, may not have prolonged the lease.
	$d->wait_value("SELECT lease_remaining > '1s' FROM zk_session", 't');
	$proxy->hold_reply_of($s{trier}, "SELECT zk_try_lock('/w/try')", op => 'getChildren', path => '^/w/try');
	my $old = $d->worker_away;
	$proxy->cut;
	thaw($d->postmaster_pid);
	$d->wait_session('connecting');
	my $result = eval { $s{trier}->result(30) };
	is($result && $result->{sqlstate}, '58030',
		'a worker lost, and ZooKeeper with it: zk_try_lock is an error') or diag $@;
	$d->reconnect($proxy);
	$s{trier}->result unless $result;
	$s{trier}->query('SELECT zk_unlock_all()');
	$d->assert_clean($zk, '/w/try');
};

all_disconnect();
unlike($_->log_since(0), qr/zklock worker" \(PID \d+\) exited with exit code (?!1\b)|zklock worker.* PANIC/,
	$_->name . ': no worker has ever left with another exit code than 1')
  foreach $b, $d;

done_testing;
