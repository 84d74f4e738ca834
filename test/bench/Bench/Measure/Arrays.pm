# Copyright (c) 2026, zklock contributors
#
# Many paths in one call.

package Bench::Measure::Arrays;

use strict;
use warnings;

use parent 'Bench::Measure';

sub name  { return 'arrays'; }
sub title { return 'Many free paths in one call'; }

sub text
{
	return <<'END';
One call takes so many free paths: `zk_lock(paths)`, and Curator's `InterProcessMultiLock`. "C" creates as many nodes,
all requests at once. The time is that of the call; the costs are those of each path.
END
}

sub compares { return 'p50'; }
sub columns  { return qw(p50 ratio requests bytes watches cpu); }

# Again and again for a while, but once at least
sub _repeat
{
	my ($seconds, $paths, $call) = @_;
	my ($sum, @durations) = (0);
	do
	{
		push @durations, $call->();
		$sum += $durations[-1] / 1e6;
	} while $sum < $seconds;
	return { durations => \@durations, seconds => $sum, acquisitions => $paths * @durations };
}

sub _zklock
{
	my ($stage, $count) = @_;
	my $server = $stage->server('a');
	my $paths  = "ARRAY(SELECT '/bench/array' || i FROM generate_series(1, $count) AS i)";
	my $do     = sub { return $stage->sql->call('time', name => 'a', index => 0, sql => "SELECT zk_$_[0]($paths)") };
	return {
		name    => 'zklock',
		pids    => [ $server->worker_pid ],
		prepare => sub { $stage->sessions(a => 1) },
		run     => sub {
			my ($seconds) = @_;
			return _repeat($seconds, $count, sub { my $time = $do->('lock'); $do->('unlock'); return $time; });
		} };
}

sub _batch
{
	my ($name, $peer, $count) = @_;
	return {
		name => $name,
		pids => [ $peer->pid ],
		run  => sub {
			my ($seconds) = @_;
			return _repeat($seconds, $count, sub { return $peer->call('batch', path => '/bench/array%d', count => $count) });
		} };
}

sub cases
{
	my ($self, $stage) = @_;
	$stage->c->call('prepare', path => '/bench/array%d', count => 1000);
	return map { {
			name        => "$_ paths",
			contestants => [
				_zklock($stage, $_), _batch('C, create only', $stage->c, $_),
				_batch('Curator', $stage->curator(1), $_) ] } } 10, 100, 1000;
}

1;
