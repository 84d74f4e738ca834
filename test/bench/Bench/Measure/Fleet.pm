# Copyright (c) 2026, zklock contributors
#
# Many small database servers on one ensemble.

package Bench::Measure::Fleet;

use strict;
use warnings;

use parent 'Bench::Measure';

use Bench::Contestants qw(outcome);
use Zklock::Util qw(nap);

my $all = 64;

# A heartbeat comes once in a second.
my $idle_seconds = 3;

sub name  { return 'fleet'; }
sub title { return 'Many database servers on one ensemble'; }

sub text
{
	return <<'END';
So many database servers at work, each with a ZooKeeper session of its own; the others are idle. Idle: the costs are
those of a server and second, which are its heartbeats. Own paths: a session of each server locks a path of its own,
thinks for 20 ms, unlocks. Same path: a session of each locks and unlocks one path that all of them want.
END
}

sub places  { return 'ensemble'; }
sub columns { return qw(p50 p99 rate requests bytes watches cpu server_cpu); }

my @conf = (
	'shared_buffers = 1MB', 'max_wal_size = 64MB', 'min_wal_size = 32MB', 'max_wal_senders = 0', 'wal_level = minimal',
	'max_worker_processes = 2');

sub _servers
{
	my ($stage, $count) = @_;
	return map { $stage->server("f$_", max_connections => 10, conf => \@conf) } 1 .. $count;
}

sub _idle
{
	my (@servers) = @_;
	return {
		name => 'idle',
		pids => [ map { $_->worker_pid } @servers ],
		run  => sub {
			nap($idle_seconds);
			return { durations => [], acquisitions => $idle_seconds * @servers, figures => { rate => undef } };
		} };
}

sub _busy
{
	my ($stage, $name, $path, $think, @servers) = @_;
	return {
		name => $name,
		pids => [ map { $_->worker_pid } @servers ],
		run  => sub {
			my ($seconds) = @_;
			my @groups = map { $stage->sessions("f$_", 1) } 1 .. @servers;
			return outcome($stage->together(0.1, $seconds,
					[ $stage->sql, 'run',
						groups  => join(',', @groups),
						acquire => 'SELECT zk_lock($1::text)',
						release => 'SELECT zk_unlock($1::text)',
						path    => $path,
						think   => $think ]));
		} };
}

sub cases
{
	my ($self, $stage) = @_;
	return map {
		my @servers = _servers($stage, $_);
		{
			name        => @servers == 1 ? '1 server' : "$_ servers",
			contestants => [
				# Those that do not take part here have heartbeats as well.
				@servers == $all ? _idle(@servers) : (),
				_busy($stage, 'own paths', '/bench/fleet%d', 20_000, @servers),
				_busy($stage, 'same path', '/bench/fleet',   0,      @servers) ] };
	} 1, 4, 16, $all;
}

sub finish { my ($self, $stage) = @_; $stage->stop_servers(qr/^f\d/); return; }

1;
