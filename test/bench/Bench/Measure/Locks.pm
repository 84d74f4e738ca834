# Copyright (c) 2026, zklock contributors
#
# The measures of lock calls and of hand-overs: see Bench::Measure.

package Bench::Measure::Locks;

use v5.36;

use Bench::Contestants qw(zklock advisory nothing dblink curator kazoo c_create c_pairs c_textbook zklock_queue curator_queue);
use Bench::Rounds;

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

our @all = ({
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
			contestants => [ map { $_->($stage, %job) } \&zklock, \&c_create, \&c_textbook, \&curator, \&kazoo, \&dblink ] };
	}
}, {
	name  => 'closed',
	title => 'Lock and unlock in a closed loop, distinct paths',
	text  => <<'END',
Each session locks and unlocks a path of its own, again and again. All sessions of a contestant share one ZooKeeper
session; those of "C" are chains of calls on one connection. The times are those of the lock call. "Two statements
that do nothing" is what PostgreSQL and its client take by themselves for a lock and an unlock.
END
	cases => sub ($stage) {
		return map {
			my %job = (path => '/bench/closed%d', sessions => $_);
			{
				name        => $_ == 1 ? '1 session' : "$_ sessions",
				contestants =>
				  [ map { $_->($stage, %job) } \&zklock, \&c_pairs, \&c_textbook, \&curator, \&kazoo, \&dblink, \&nothing ] };
		} 1, 4, 16, 64;
	},
	charts => [ {
		file => 'benchmark-throughput.svg', figure => 'rate', place => 'memory',
		title => 'Locks taken and released in a second, by number of sessions',
		x => 'sessions', y => 'locks per second' } ]
}, {
	name  => 'handover',
	title => 'All want the same lock',
	text  => <<'END',
All sessions lock and unlock one path, as fast as they can: in a second it changes hands so many times. They are on
one database server, or half of them on each of two; for Curator and kazoo, in one process or two.
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
						curator($stage, %job), kazoo($stage, %job) ] };
			}
		}
		return @cases;
	},
	charts => [ map { {
		file => "benchmark-handover-$_->[0].svg", figure => 'rate', place => 'memory', match => qr/ on $_->[1]/,
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
		file => 'benchmark-waiting.svg', figure => 'p50', place => 'memory',
		title => 'Time from one holder to the next, by number of waiters',
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
});

1;
