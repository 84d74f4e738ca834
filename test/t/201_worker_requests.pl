# Copyright (c) 2026, zklock contributors
#
# The worker is terminated with a request to ZooKeeper under way.
#
# The worker that sent it will never see the reply. The next one knows from shared memory
# what may exist. It has a connection of its own, past what is held back in the proxy.

use Zklock::Test;
use Zklock::Cast;

my ($zk, $proxy, $b, $d) = cast('b d', proxied => 'd', b => { timeout => '20s' }, d => { timeout => '60s' });
my $number = 0;

foreach my $hold (qw(hold_reply hold_request))
{
	foreach my $op (qw(create2 createContainer getChildren getData))
	{
		subtest "a worker is lost with $op under way ($hold): the lock is granted once" => sub {
			my $path = '/w/under-way-' . ++$number;
			if ($op eq 'getData')
			{
				hold($b, 'foreigner', $path);
			}
			on($d, 'asker');
			on($d, 'canceller');
			my $fault = $proxy->$hold(op => $op, path => "^$path");
			queue($d, $_, $path) foreach qw(canceller asker);
			$proxy->fired($fault);
			my $old = $d->worker_away;
			is($s{canceller}->cancelled, '57014', 'a request is cancelled meanwhile');
			$d->worker_back($old);
			if ($op eq 'getData')
			{
				$d->wait_waiting($s{asker}, $path);
				wait_until { $zk->children($path) == 2 } 'the waiter to have one node';
				$s{foreigner}->query("SELECT zk_unlock('$path')");
			}
			is($s{asker}->finish, 't', "the lock is granted");
			$proxy->heal;
			wait_until { $zk->children($path) == 1 } "one node to be left in $path";
			is(join(' ', $zk->children($path)), join(' ', map { $_->{node} } $d->locks("path = '$path'")),
				'and has one node, which is known');
			is($s{asker}->query("SELECT zk_unlock('$path')"), 't', 'it is given back');
			Zklock::Server->assert_clean($zk, [ $b, $d ], $path);
		};
	}

	subtest "a worker is lost with a delete under way ($hold): the lock is released" => sub {
		my $path = '/w/under-way-' . ++$number;
		hold($d, 'asker', $path);
		queue($b, 'foreigner', $path);
		my $fault = $proxy->$hold(op => 'delete', path => "^$path");
		$s{asker}->query_start("SELECT zk_unlock('$path')");
		$proxy->fired($fault);
		my $old = $d->worker_away;
		is($s{asker}->finish, 't', "a worker lost with a delete under way ($hold): zk_unlock returns");
		$d->worker_back($old);
		is($s{foreigner}->finish, 't', 'and the next one gets the lock');
		$d->wait_value('SELECT count(*) FROM zk_locks', 0);
		$proxy->heal;
		is(scalar($zk->children($path)), 1, 'which is the only one');

		# The node of one who gave up goes although it is not its turn.
		queue($d, 'asker', $path);
		wait_until { $zk->children($path) == 2 } 'the waiting node';
		$fault = $proxy->$hold(op => 'delete', path => "^$path");
		$s{asker}->cancel;
		$s{asker}->result;
		$proxy->fired($fault);
		$old = $d->worker_away;
		$d->worker_back($old);
		wait_until { $zk->children($path) == 1 } 'the cancelled node to go';
		pass("a worker lost with the delete of a waiting node under way ($hold): the node goes");
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
	$proxy->heal;
	$d->wait_session;
	$s{trier}->result unless $result;
	$s{trier}->query('SELECT zk_unlock_all()');
	$d->assert_clean($zk, '/w/try');
};

all_disconnect();
unlike($_->log_since(0), qr/zklock worker" \(PID \d+\) exited with exit code (?!1\b)|zklock worker.* PANIC/,
	$_->name . ': no worker has ever left with another exit code than 1')
  foreach $b, $d;

done_testing;
