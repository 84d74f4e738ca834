# Copyright (c) 2026, zklock contributors
#
# The measures of queues of elements, of bystanders, the commit guard, elections and many servers: see
# Bench::Measure.

package Bench::Measure::Others;

use v5.36;

use Bench::Contestants qw(sql);
use IPC::Run;
use Zklock::Util qw(nap);

sub _elements_busy($stage)
{
	my $server = $stage->server('a');
	my $acquire = q{SELECT CASE WHEN current_setting('bench.offers', true) = 'on' }
	  . q{THEN zk_queue_offer($1::text, 'element') }
	  . q{ELSE coalesce(encode(zk_queue_take($1::text, '0.1s'), 'escape'), 'none') END};
	return sql('zklock', $stage, [ $server->worker_pid ],
		sub { return ($stage->sessions('a-offer', 16, 'SET bench.offers = on'), $stage->sessions('a-take', 16)) },
		$acquire, 'SELECT $1::text', sessions => 32, path => '/bench/elements');
}

# Of many idle consumers some get an element while it is measured.
sub _elements_idle($stage)
{
	my ($consumers, $offers) = (1000, 200);
	my $server = $stage->server('a');
	my $path   = '/bench/idle';
	my $offer  = sub ($count) {
		return $stage->time_of('a-one', "SELECT count(zk_queue_offer('$path', 'element')) FROM generate_series(1, $count)");
	};
	return {
		name    => 'zklock',
		pids    => [ $server->worker_pid ],
		prepare => sub {
			$stage->sessions(a => $consumers);
			$stage->sessions('a-one' => 1);
			$stage->enqueue('a', $_, $path, q{SELECT encode(zk_queue_take($1::text, '1h'), 'escape')}, 'SELECT $1::text')
			  foreach 0 .. $consumers - 1;
			$server->wait_value("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT encode(zk_queue_take(%'",
				$consumers);
			$server->settle;
		},
		run => sub {
			my $time = $offer->($offers);
			return { durations => [ $time / $offers ], acquisitions => $offers, figures => { rate => 1e6 * $offers / $time } };
		},
		finish => sub {
			$offer->($consumers - $offers);
			$stage->sql->call('drain', groups => "a:$consumers");
		} };
}

sub _pgbench($server, @options)
{
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'pgbench', '-h', $server->host, '-p', $server->port, @options, 'postgres' ], '>', \$out, '2>', \$err)
	  or die "pgbench @options: $err";
	return $out;
}

sub _bystander($name, $server, @script)
{
	my $transactions = 200;
	_pgbench($server, '-i', '-q', '-s', '1');
	return {
		name => $name,
		run  => sub ($seconds) {
			my $said = _pgbench($server, '-n', '-M', 'prepared', @script, '-t', $transactions);
			my ($rate) = $said =~ /^tps = ([\d.]+) \((?:without|excluding)/m or die "pgbench does not say how fast it was: $said";
			my $done = $transactions;
			$transactions = int($rate * $seconds) + 1;
			return { durations => [], acquisitions => $done, figures => { rate => 0 + $rate } };
		} };
}

# A session that begins with some statements, and runs one that does something so many times
sub _loop($stage, $name, $times, $sql, $first = undef)
{
	my $group = "a-$name";
	$stage->server('a');
	return {
		name    => $name,
		prepare => sub { $stage->sessions($group => 1, $first) },
		run     => sub {
			my $time = $stage->time_of($group, $sql);
			return { durations => [ $time / $times ], acquisitions => $times, seconds => $time / 1e6 };
		} };
}

sub _guard($stage, $guard, $commits)
{
	return _loop($stage, $guard, $commits, "DO 'BEGIN FOR i IN 1..$commits LOOP PERFORM txid_current(); COMMIT; END LOOP; END'",
		"SET synchronous_commit = off; SET zklock.commit_guard = '$guard'; SELECT zk_lock('/bench/guard-$guard')");
}

sub _leader($stage, $name, $call)
{
	my $calls = 100_000;
	return _loop($stage, $name, $calls, "SELECT count($call) FROM generate_series(1, $calls)");
}

my $fleet = 64;

my @fleet_conf = (
	'shared_buffers = 1MB', 'max_wal_size = 64MB', 'min_wal_size = 32MB', 'max_wal_senders = 0', 'wal_level = minimal',
	'max_worker_processes = 2');

# For some seconds: a heartbeat comes once in each.
sub _fleet_idle(@servers)
{
	my $seconds = 3;
	return {
		name => 'idle',
		pids => [ map { $_->worker_pid } @servers ],
		run  => sub {
			nap($seconds);
			return { durations => [], acquisitions => $seconds * @servers, figures => { rate => undef } };
		} };
}

sub _fleet_busy($stage, $name, $path, $think, @servers)
{
	return sql($name, $stage, [ map { $_->worker_pid } @servers ], sub { return map { $stage->sessions("f$_", 1) } 1 .. @servers },
		'SELECT zk_lock($1::text)', 'SELECT zk_unlock($1::text)', sessions => scalar @servers, path => $path, think => $think);
}

our @all = ({
	name  => 'elements',
	title => 'Queues of elements',
	text  => <<'END',
"16 offer, 16 take": sessions of one server, as fast as they can; the rate is that of offers and removals together. "1,000
wait": so many sessions wait for elements of one queue; the time is that of one offer, one after the other.
END
	places  => [qw(memory ensemble)],
	columns => [qw(p50 p99 rate requests bytes watches cpu)],
	cases   => sub ($stage) {
		return (
			{ name => '16 offer, 16 take', contestants => [ _elements_busy($stage) ] },
			{ name => '1,000 wait',        contestants => [ _elements_idle($stage) ] });
	}
}, {
	name  => 'bystander',
	title => 'Transactions that use no zklock function',
	text  => <<'END',
pgbench, one client, on two servers that differ in whether zklock is loaded.
END
	places  => ['memory'],
	columns => [qw(rate ratio)],
	# A difference of one in a hundred takes more rounds to see.
	rounds_factor => 4,
	cases         => sub ($stage) {
		my $loaded = $stage->server('loaded');
		my $plain  = $stage->server('plain', preload => 0, extension => 0);
		return map {
			my ($name, @script) = @$_;
			{
				name        => $name,
				contestants => [ _bystander('zklock', $loaded, @script), _bystander('not loaded', $plain, @script) ] };
		} [ 'select-only', '-S' ], ['tpcb'];
	}
}, {
	name  => 'guard',
	title => 'The commit guard',
	text  => <<'END',
A session holds a lock, and commits transactions that have written, in a procedural loop, with `synchronous_commit =
off` and different `zklock.commit_guard`. The time is that of one commit, and what it is more than with `off`.
END
	compares => 'p50',
	columns  => [qw(p50 difference requests bytes)],
	# Those that ask ZooKeeper are slower.
	cases => sub ($stage) {
		return {
			name        => 'a commit',
			contestants => [ _guard($stage, off => 20_000), _guard($stage, lease => 20_000), _guard($stage, quorum => 200) ] };
	}
}, {
	name  => 'leader',
	title => 'zk_is_leader',
	text  => <<'END',
One call within a query that makes many, and what it is more than a call of a function that does nothing.
END
	places   => ['memory'],
	compares => 'p50',
	columns  => [qw(p50 difference)],
	cases    => sub ($stage) {
		my $server = $stage->server('a');
		$server->set_conf('zklock.elections' => '/bench/leader');
		$server->wait_value("SELECT count(*) FROM zk_elections WHERE path = '/bench/leader' AND is_leader", 1);
		return {
			name        => 'a call',
			contestants => [
				_leader($stage, 'pg_backend_pid', 'pg_backend_pid()'),
				_leader($stage, 'zk_is_leader',   "zk_is_leader('/bench/leader')") ] };
	},
	finish => sub ($stage) { $stage->server('a')->set_conf('zklock.elections' => ''); return; }
}, {
	name  => 'fleet',
	title => 'Many database servers on one ensemble',
	text  => <<'END',
So many database servers at work, each with a ZooKeeper session of its own; the others are idle. Idle: the costs are
those of a server and second, which are its heartbeats. Own paths: a session of each server locks a path of its own,
thinks for 20 ms, unlocks. Same path: a session of each locks and unlocks one path that all of them want.
END
	places  => ['ensemble'],
	columns => [qw(p50 p99 rate requests bytes watches cpu server_cpu)],
	cases   => sub ($stage) {
		return map {
			my @servers = map { $stage->server("f$_", max_connections => 10, conf => \@fleet_conf) } 1 .. $_;
			{
				name        => @servers == 1 ? '1 server' : "$_ servers",
				contestants => [
					# Those that do not take part here have heartbeats as well.
					@servers == $fleet ? _fleet_idle(@servers) : (),
					_fleet_busy($stage, 'own paths', '/bench/fleet%d', 20_000, @servers),
					_fleet_busy($stage, 'same path', '/bench/fleet',   0,      @servers) ] };
		} 1, 4, 16, $fleet;
	},
	finish => sub ($stage) { $stage->stop_servers(qr/^f\d/); return; }
});

1;
