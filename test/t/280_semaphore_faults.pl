# Copyright (c) 2026, zklock contributors
#
# A wait for a permit that ends in each of its states, in each possible way: no permit is had
# twice, none leaks, and the next session gets the only one.
#
# Server a talks to ZooKeeper through a proxy, b directly.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::Semaphore;

my @conf  = ("zklock.session_timeout = '12s'");
my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '12s');
my $shell = $zk->shell;
Zklock::Semaphore::cast($zk, $a, $b);

my $holder = $b->session(name => 'b holder');
my $next_a = $a->session(name => 'a next');
my $next_b = $b->session(name => 'b next');

# The states of a wait. Each is brought about by code that gets the session that will end, and returns
# code that lets things go on. Then the next session must get the only permit. A wait with a timeout may
# end before it is in that state: it is given more time then.
sub reach($victim, $condition)
{
	my $path_is = "path = '$path' AND pid = " . $victim->pid;
	return wait_until { $a->lock_count("$path_is AND $condition") || !$victim->busy } $victim->name . " to be $condition";
}

my @states = (
	# The worker has not seen the request.
	'requested' => sub ($victim, @timeout) {
		my $worker = $a->worker_pid;
		freeze($worker);
		acquire_start($victim, 1, @timeout);
		reach($victim, "state = 'requested'");
		return sub { thaw($worker) };
	},
	(   map {
			my ($what, $where, $fault) = @$_;
			(   $what => sub ($victim, @timeout) {
					$shell->create("$path/$_", makepath => 1) foreach qw(locks leases);
					my $happens = $fault->($path);
					acquire_start($victim, 1, @timeout);
					wait_until { $proxy->has_fired($happens) || !$victim->busy } "$what: the call";
					reach($victim, "state = 'waiting' AND $where");
					return sub { $proxy->heal };
				});
		} (
			[ 'turn asked for', "node !~ '\\d{10}\$'",
				sub { $proxy->hold_request(op => 'create2', path => "^$_[0]/locks/") } ],
			[ 'turn not answered', "node !~ '\\d{10}\$'",
				sub { $proxy->hold_reply(op => 'create2', path => "^$_[0]/locks/") } ],
			[ 'turn not listed', "node ~ 'lock-\\d{10}\$'",
				sub { $proxy->hold_request(op => 'getChildren', path => "^$_[0]/locks\$") } ],
			[ 'lease asked for', "node ~ 'lease-\$'",
				sub { $proxy->hold_request(op => 'create2', path => "^$_[0]/leases/") } ],
			[ 'lease not answered', "node ~ 'lease-\$'",
				sub { $proxy->hold_reply(op => 'create2', path => "^$_[0]/leases/") } ],
			[ 'lease not listed', "node ~ 'lease-\\d{10}\$'",
				sub { $proxy->hold_request(op => 'getChildren', path => "^$_[0]/leases\$") } ])),
	'waiting for its turn' => sub ($victim, @timeout) {
		acquire($holder, 1);
		acquire_until($next_a, 1, $has_lease);
		acquire_start($victim, 1, @timeout);
		reach($victim, $has_turn);
		return sub { $next_a->cancel; $next_a->result; release($holder) };
	},
	'waiting for a permit' => sub ($victim, @timeout) {
		acquire($holder, 1);
		acquire_start($victim, 1, @timeout);
		reach($victim, $has_lease);
		return sub { release($holder) };
	},
	'not connected' => sub ($victim, @timeout) {
		$a->cut_off($proxy);
		acquire_start($victim, 1, @timeout);
		reach($victim, "state = 'waiting'");
		return sub { $a->reconnect($proxy) };
	});

my @ways = (
	[ 'cancel', '57014', sub { $_[0]->cancel } ],
	[ 'terminate', '57P01', sub { $_[0]->terminate } ],
	[ 'lock_timeout', '55P03' ],
	[ 'timeout', '00000' ]);

while (my ($state, $reach) = splice(@states, 0, 2))
{
	subtest "a wait for a permit leaves nothing behind when it ends: $state" => sub {
		foreach my $way (@ways)
		{
			my ($how, $sqlstate, $end) = @$way;
			my $name   = "$state, $how";
			my $victim = $a->session(name => 'a victim');
			my $go_on;
			for (my $ms = 250; !$go_on; $ms *= 2)
			{
				new_path();
				$victim->query("SET lock_timeout = '$ms ms'") if $how eq 'lock_timeout';
				$go_on = $reach->($victim, $how eq 'timeout' ? "$ms ms" : ());
				next if $victim->busy;
				$victim->result;
				$go_on->();
				undef $go_on;
				$proxy->clear;
			}
			$end->($victim) if $end;
			my $r = $victim->result;
			# Nobody can tell whether a permit is free.
			$sqlstate = '58030' if $how eq 'timeout' && $state eq 'not connected';
			is($r->{sqlstate}, $sqlstate, $name) or diag($r->{error});
			is($r->{text}, 'f', "$name: no permit") if $sqlstate eq '00000';
			$go_on->();
			is(acquire($_, 1, '30s'), 't', "$name: another gets it") && release($_) foreach $next_a, $next_b;
			if ($how ne 'terminate')
			{
				like($victim->try('RESET lock_timeout; ' . "SELECT zk_semaphore_release('$path')")->{text}, qr/^f$/,
					"$name: it holds none");
				is(acquire($victim, 1, '30s'), 't', "$name: but can have one later");
			}
			$victim->disconnect;
			settled(0, $name);
		}
	};
}

subtest 'a session without a permit is told when ZooKeeper is out of reach, or waits' => sub {
	my @s = map { $a->session(name => "a$_") } 1, 2;

	new_path();
	acquire($s[0], 1);
	$a->cut_off($proxy);
	is($s[1]->try(sql(1, '0'))->{sqlstate}, '58030', 'who does not wait learns that nobody can be asked');
	is($s[1]->try(sql(1, '200ms'))->{sqlstate}, '58030', 'so does who waited');
	acquire_start($s[1], 1);
	wait_row($s[1], "state = 'waiting'");
	is(release($s[0]), 't', 'a release does not wait for it');
	$proxy->heal;
	is($s[1]->finish, 't', 'a wait may outlive it');
	release($s[1]);
	settled(0, 'out of reach');
	$_->disconnect foreach @s;
};

my $c = Zklock::Server->new('c', zookeeper => $zk, conf => [ 'zklock.max_locks = 3', @conf ]);

subtest 'a session that finds no room in shared memory is told which setting is to blame' => sub {
	my @c = map { $c->session(name => "c$_") } 1, 2;
	new_path();
	is(acquire($c[0], 9), 't', 'a permit of three entries');
	$c->wait_value('SELECT count(*) FROM zk_locks', 1);
	is(acquire($c[0], 9), 't', 'another: to ask for it takes two');
	$c->wait_value('SELECT count(*) FROM zk_locks', 2);
	foreach my $zero (0, 1)
	{
		if ($zero)
		{
			# Once what the refused call had taken is given back.
			wait_until { ($c[0]->try(sql(9, '0'))->{text} || '') eq 't' } 'an entry to be free';
			pass('without waiting it takes one, the last');
		}
		fails($c[1]->try(sql(9)), '53200', 'then there is no room', hint => qr/zklock\.max_locks/);
		$c->wait_value('SELECT count(*) FROM zk_locks', $zero ? 3 : 2);
	}
	$c[0]->query('SELECT zk_unlock_all()');
	is(acquire($c[1], 1, '30s'), 't', 'after that there is again');
	$c[1]->query('SELECT zk_unlock_all()');

	$_->disconnect foreach @c;
	$c->assert_clean($zk);
};

$_->disconnect foreach $holder, $next_a, $next_b;
Zklock::Server->assert_clean($zk, [ $a, $b ], used_paths());
done_testing;
