# Copyright (c) 2026, zklock contributors
#
# What it costs to ask whether this server leads.

package Bench::Measure::Leader;

use strict;
use warnings;

use parent 'Bench::Measure';

my $calls = 100_000;

sub name  { return 'leader'; }
sub title { return 'zk_is_leader'; }

sub text
{
	return <<'END';
One call within a query that makes many, and what it is more than a call of a function that does nothing.
END
}

sub places    { return 'memory'; }
sub compares  { return 'p50'; }
sub columns   { return qw(p50 difference); }
sub available { my ($self, $stage) = @_; return $stage->has_function('zk_is_leader'); }

sub _contestant
{
	my ($stage, $name, $call) = @_;
	return {
		name    => $name,
		prepare => sub { $stage->sessions(a => 1) },
		run     => sub {
			my $time = $stage->sql->call('time', name => 'a', index => 0,
				sql => "SELECT count($call) FROM generate_series(1, $calls)");
			return { durations => [ $time / $calls ], acquisitions => $calls, seconds => $time / 1e6 };
		} };
}

sub cases
{
	my ($self, $stage) = @_;
	my $server = $stage->server('a');
	$server->set_conf('zklock.elections' => '/bench/leader');
	$server->wait_value("SELECT count(*) FROM zk_elections WHERE path = '/bench/leader' AND is_leader", 1);
	return {
		name        => 'a call',
		contestants => [
			_contestant($stage, 'pg_backend_pid', 'pg_backend_pid()'),
			_contestant($stage, 'zk_is_leader',   "zk_is_leader('/bench/leader')") ] };
}

sub finish { my ($self, $stage) = @_; $stage->server('a')->set_conf('zklock.elections' => ''); return; }

1;
