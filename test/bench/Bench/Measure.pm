# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Measure - what is measured, and how each contestant does it

=head1 SYNOPSIS

  my @measures = Bench::Measure::all();

An entry has

  name        how ONLY=... and the results call it
  title, text heading in the document, and what it is about
  cases       given the stage, a list of { name, contestants }; see Bench::Contestants

and what is not as with most of them:

  compares    the figure of which zklock is compared with the others: 'p50', or 'rate'
  places      where it is measured, of Bench::Stage's; default: in all but "delay"
  columns     figures that its table shows; default: all that lock calls have
  finish      given the stage, undoes what cases has changed there
  rounds_factor, seconds_factor
              how many times more rounds than others it needs; how many times longer they take
  charts      list of { file, title, x, y, figure, match }: pictures, of data in memory; Bench::Chart

=cut

package Bench::Measure;

use v5.36;

use Bench::Contestants
  qw(zklock advisory nothing dblink curator kazoo etcd redis c_create c_pairs c_textbook sql guarded zklock_queue curator_queue);
use Bench::Rounds;
use IPC::Run;
use Zklock::Util qw(nap);

# A thousand sessions that wait, for some times deadlock_timeout, after which each looks for deadlocks
sub _crowd($stage, $name, $wait, $release)
{
	my ($waiting, $seconds) = (1000, 5);
	my $server = $stage->server('a');
	return {
		name    => $name,
		prepare => sub {
			$stage->sessions(a => $waiting + 1);
			$stage->enqueue('a', $_, '/bench/crowd', $wait, $release) foreach 0 .. $waiting;
			$server->wait_value(
				"SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND wait_event IS NOT NULL AND query LIKE 'SELECT %lock(%\$1%'",
				$waiting);
		},
		run => sub {
			my @pids  = split /\n/, $server->value('SELECT pid FROM pg_stat_activity');
			my $spent = sub { return Bench::Rounds::cpu_of(@pids) };
			my $from  = $spent->();
			sleep $seconds;
			return { durations => [ ($spent->() - $from) / $waiting / $seconds ], acquisitions => 1, seconds => $seconds };
		},
		finish => sub { $stage->sql->call('drain', groups => 'a:' . ($waiting + 1)) } };
}

# Again and again for a while, but once at least
sub _repeat($seconds, $paths, $call)
{
	my ($sum, @durations) = (0);
	do
	{
		push @durations, $call->();
		$sum += $durations[-1] / 1e6;
	} while $sum < $seconds;
	return { durations => \@durations, seconds => $sum, acquisitions => $paths * @durations };
}

sub _array($stage, $count)
{
	my $server = $stage->server('a');
	my $paths  = "ARRAY(SELECT '/bench/array' || i FROM generate_series(1, $count) AS i)";
	return {
		name    => 'zklock',
		pids    => [ $server->worker_pid ],
		prepare => sub { $stage->sessions(a => 1) },
		run     => sub ($seconds) {
			return _repeat($seconds, $count, sub {
				my $time = $stage->time_of('a', "SELECT zk_lock($paths)");
				$stage->time_of('a', "SELECT zk_unlock($paths)");
				return $time;
			});
		} };
}

sub _batch($name, $peer, $count)
{
	return {
		name => $name,
		pids => [ $peer->pid ],
		run  => sub ($seconds) {
			return _repeat($seconds, $count, sub { return $peer->call('batch', path => '/bench/array%d', count => $count) });
		} };
}

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

my %usual = (
	compares       => 'rate',
	places         => [qw(memory disk ensemble)],
	columns        => [qw(p50 p99 rate ratio requests bytes watches cpu switches)],
	finish         => sub { return; },
	rounds_factor  => 1,
	seconds_factor => 1,
	charts         => []);

my @all = ({
	name  => 'guarded',
	title => 'A guarded transaction',
	text  => <<'END',
Threads of a Java program do what locks are for: lock, `UPDATE` of a row, COMMIT, unlock. zklock: in the transaction, by
JDBC alone, with `zk_xact_lock`. Curator: with `InterProcessMutex` around it. "pg_advisory_lock" is
`pg_advisory_xact_lock`, which excludes nobody on another server. etcd's program is in Go (lib/pq), Redis' in C (libpq); they send a
transaction in two messages, as JDBC does. The times are those of all of it. Each thread has a
connection of its own; on two servers there is a program for each, with half of the threads.
END
	places  => [qw(memory disk ensemble delay)],
	columns => [qw(p50 p99 rate ratio requests bytes)],
	cases   => sub ($stage) {
		return map {
			my ($name, %job) = @$_;
			{ name => $name, contestants => [ guarded($stage, %job) ] }
		} (
			[ '1 thread',                               path => '/bench/tx%d' ],
			[ '16 threads, a path each',                path => '/bench/tx%d',     sessions => 16 ],
			[ '16 threads, one path',                   path => '/bench/tx',       sessions => 16 ],
			[ '16 threads, paths never locked twice',   path => '/bench/new%n',    sessions => 16 ],
			[ '16 threads, 10,000 paths at random',     path => '/bench/random%r', sessions => 16 ],
			[ '2 threads on two servers, one path',     path => '/bench/tx',       sessions => 2,  servers => 2 ],
			[ '16 threads on two servers, one path',    path => '/bench/tx',       sessions => 16, servers => 2 ],
			[ '16 threads on two servers, a path each', path => '/bench/tx%s-%d',  sessions => 16, servers => 2 ]);
	}
}, {
	name  => 'think',
	title => 'Lock, think 20 ms, unlock',
	text  => <<'END',
One session. The times are those of the lock call. "C, create only" is the floor: no lock can do with less than one
write that ZooKeeper commits.
END
	compares       => 'p50',
	seconds_factor => 2,
	cases          => sub ($stage) {
		my %job = (path => '/bench/think%d', think => 20_000);
		return {
			name        => '1 session',
			contestants => [
				map { $_->($stage, %job) } \&zklock, \&c_create, \&c_textbook, \&curator, \&kazoo, \&etcd, \&redis, \&dblink ] };
	}
}, {
	name  => 'closed',
	title => 'Lock and unlock in a closed loop, distinct paths',
	text  => <<'END',
Each session locks and unlocks a path of its own, again and again. All sessions of a contestant share one ZooKeeper
session; those of "C" are chains of calls on one connection. etcd's `concurrency.Mutex` has a lease for each, on one
connection. Redis (`SET NX PX`, and a deletion that compares) is one server that keeps nothing on a disk, and has a
connection for each. The times are those of the lock call. "Two statements that do nothing" is what PostgreSQL and its
client take by themselves for a lock and an unlock.
END
	cases => sub ($stage) {
		return map {
			my %job = (path => '/bench/closed%d', sessions => $_);
			{
				name        => $_ == 1 ? '1 session' : "$_ sessions",
				contestants => [
					map { $_->($stage, %job) } \&zklock, \&c_pairs, \&c_textbook, \&curator, \&kazoo, \&etcd, \&redis, \&dblink,
					\&nothing ] };
		} 1, 4, 16, 64;
	},
	charts => [ {
		file => 'benchmark-throughput.svg', figure => 'rate',
		title => 'Locks taken and released in a second, by number of sessions',
		x => 'sessions', y => 'locks per second' } ]
}, {
	name  => 'paths',
	title => 'Lock and unlock in a closed loop, paths that change',
	text  => <<'END',
16 sessions, each of which locks and unlocks another path every time: one that nobody has ever locked, or one of 10,000,
at random, whose nodes are there.
END
	cases => sub ($stage) {
		return map {
			my ($name, $path) = @$_;
			my %job = (path => $path, sessions => 16);
			{
				name        => $name,
				contestants => [ map { $_->($stage, %job) } \&zklock, \&curator, \&kazoo, \&etcd, \&redis, \&dblink ] };
		} [ 'never locked twice', '/bench/new%n' ], [ '10,000 at random', '/bench/random%r' ];
	}
}, {
	name  => 'handover',
	title => 'All want the same lock',
	text  => <<'END',
All sessions lock and unlock one path, as fast as they can: in a second it changes hands so many times. They are on
one database server, or half of them on each of two; for Curator, kazoo and etcd, in one process or two. In Redis nobody
can wait for a lock but by asking again and again: how often is up to the client.
END
	cases => sub ($stage) {
		my @cases;
		foreach my $servers (1, 2)
		{
			foreach my $sessions (2, 16, 64, 256)
			{
				my %job = (path => '/bench/handover', sessions => $sessions, servers => $servers);
				push @cases, {
					name        => "$sessions sessions on " . ($servers == 1 ? 'one server' : 'two servers'),
					contestants => [
						zklock($stage, %job), $servers == 1 ? advisory($stage, %job) : (),
						map { $_->($stage, %job) } \&curator, \&kazoo, \&etcd ] };
			}
		}
		return @cases;
	},
	charts => [ map { {
		file => "benchmark-handover-$_->[0].svg", figure => 'rate', match => qr/ on $_->[1]/,
		title => "Hand-overs of one lock in a second, sessions on $_->[1]",
		x => 'sessions', y => 'hand-overs per second' } } [ one => 'one server' ], [ two => 'two servers' ] ]
}, {
	name  => 'waiting',
	title => 'A hand-over while many wait',
	text  => <<'END',
So many sessions of one server, or threads of one process, wait when the lock is released. The time is that from one
holder to the next, as long as more than half of them wait.
END
	compares => 'p50',
	cases    => sub ($stage) {
		return map {
			my %queue = (path => '/bench/waiting', waiting => $_, counted => $_ / 2);
			{ name => "$_ waiting", contestants => [ zklock_queue($stage, %queue), curator_queue($stage, %queue) ] };
		} 10, 100, 1000;
	},
	charts => [ {
		file => 'benchmark-waiting.svg', figure => 'p50',
		title => 'Time from one holder to the next, by number of waiters on one server',
		x => 'waiting', y => 'microseconds' } ]
}, {
	name  => 'crowd',
	title => 'Sessions that wait for long',
	text  => <<'END',
1,000 sessions of one server wait for a lock, for longer than `deadlock_timeout`, which is 1 s. The time is what all
processes of the server take of the processors, for each session and second.
END
	places   => ['memory'],
	compares => 'p50',
	columns  => ['p50'],
	cases    => sub ($stage) {
		return {
			name        => '1,000 wait',
			contestants => [
				_crowd($stage, 'zklock', 'SELECT zk_lock($1::text)', 'SELECT zk_unlock($1::text)'),
				_crowd($stage, 'pg_advisory_lock', 'SELECT pg_advisory_lock(hashtext($1))',
					'SELECT pg_advisory_unlock(hashtext($1))') ] };
	}
}, {
	name  => 'foreign',
	title => 'A hand-over between servers with many nodes queued',
	text  => <<'END',
32 sessions wait, by turns on one and the other of two servers (for Curator: processes), and behind them so many nodes
of another client. The time is that from one holder to the next.
END
	compares => 'p50',
	cases    => sub ($stage) {
		return map {
			my %queue = (path => '/bench/foreign', waiting => 32, servers => 2, foreigners => $_);
			{ name => "$_ nodes", contestants => [ zklock_queue($stage, %queue), curator_queue($stage, %queue) ] };
		} 10, 1000, 5000;
	}
}, {
	name  => 'arrays',
	title => 'Many free paths in one call',
	text  => <<'END',
One call takes so many free paths: `zk_lock(paths)`, and Curator's `InterProcessMultiLock`. "C" creates as many nodes,
all requests at once. The time is that of the call; the costs are those of each path.
END
	compares => 'p50',
	columns  => [qw(p50 ratio requests bytes watches cpu)],
	cases    => sub ($stage) {
		$stage->c->call('prepare', path => '/bench/array%d', count => 1000);
		return map { {
			name        => "$_ paths",
			contestants => [
				_array($stage, $_), _batch('C, create only', $stage->c, $_),
				_batch('Curator', $stage->curator(1), $_) ] } } 10, 100, 1000;
	}
}, {
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

sub all { return map { { %usual, %$_ } } @all; }

1;
