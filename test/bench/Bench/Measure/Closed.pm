# Copyright (c) 2026, zklock contributors
#
# Sessions that do nothing but lock and unlock, each on a path of its own.

package Bench::Measure::Closed;

use strict;
use warnings;

use parent 'Bench::Measure';

use Bench::Contestants qw(zklock c_pairs c_textbook curator kazoo dblink nothing);

sub name  { return 'closed'; }
sub title { return 'Lock and unlock in a closed loop, distinct paths'; }

sub text
{
	return <<'END';
Each session locks and unlocks a path of its own, again and again. All sessions of a contestant share one ZooKeeper
session; those of "C" are chains of calls on one connection. The times are those of the lock call. "Two statements
that do nothing" is what PostgreSQL and its client take by themselves for a lock and an unlock.
END
}

sub cases
{
	my ($self, $stage) = @_;
	return map {
		my %job = (path => '/bench/closed%d', sessions => $_);
		{
			name => $_ == 1 ? '1 session' : "$_ sessions",
			contestants =>
			  [ map { $_->($stage, %job) } \&zklock, \&c_pairs, \&c_textbook, \&curator, \&kazoo, \&dblink, \&nothing ] };
	} 1, 4, 16, 64;
}

sub charts
{
	return {
		file => 'benchmark-throughput.svg', figure => 'rate', place => 'memory',
		title => 'Locks taken and released in a second, by number of sessions',
		x => 'sessions', y => 'locks per second' };
}

1;
