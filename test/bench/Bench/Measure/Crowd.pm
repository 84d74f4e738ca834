# Copyright (c) 2026, zklock contributors
#
# What sessions cost that wait for long.

package Bench::Measure::Crowd;

use strict;
use warnings;

use parent 'Bench::Measure';

use Bench::Meter;
use List::Util qw(sum0);

# Seconds: some times deadlock_timeout, after which each session looks for deadlocks
my $lasts = 5;

sub name  { return 'crowd'; }
sub title { return 'Sessions that wait for long'; }

sub text
{
	return <<'END';
1,000 sessions of one server wait for a lock, for longer than `deadlock_timeout`, which is 1 s. The time is what all
processes of the server take of the processors, for each session and second.
END
}

sub places   { return 'memory'; }
sub compares { return 'p50'; }
sub columns  { return qw(p50); }

sub _contestant
{
	my ($stage, $name, $wait, $release) = @_;
	my $waiting = 1000;
	my $server  = $stage->server('a');
	return {
		name    => $name,
		prepare => sub {
			$stage->sessions(a => $waiting + 1);
			$stage->sql->call('enqueue', name => 'a', index => $_, path => '/bench/crowd', acquire => $wait, release => $release)
			  foreach 0 .. $waiting;
			$server->wait_value(
				"SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND wait_event IS NOT NULL AND query LIKE 'SELECT %lock(%\$1%'",
				$waiting);
		},
		run => sub {
			my @pids  = split /\n/, $server->value('SELECT pid FROM pg_stat_activity');
			my $spent = sub { return sum0(map { Bench::Meter::cpu_of($_) } @pids) };
			my $from  = $spent->();
			sleep $lasts;
			return { durations => [ ($spent->() - $from) / $waiting / $lasts ], acquisitions => 1, seconds => $lasts };
		},
		finish => sub { $stage->sql->call('drain', groups => 'a:' . ($waiting + 1)) } };
}

sub cases
{
	my ($self, $stage) = @_;
	return {
		name        => '1,000 wait',
		contestants => [
			_contestant($stage, 'zklock', 'SELECT zk_lock($1::text)', 'SELECT zk_unlock($1::text)'),
			_contestant($stage, 'pg_advisory_lock', 'SELECT pg_advisory_lock(hashtext($1))',
				'SELECT pg_advisory_unlock(hashtext($1))') ] };
}

1;
