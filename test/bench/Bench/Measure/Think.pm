# Copyright (c) 2026, zklock contributors
#
# One session locks, thinks for 20 ms, unlocks.

package Bench::Measure::Think;

use strict;
use warnings;

use parent 'Bench::Measure';

use Bench::Contestants qw(zklock c_create c_textbook curator kazoo dblink);

sub name  { return 'think'; }
sub title { return 'Lock, think 20 ms, unlock'; }

sub text
{
	return <<'END';
One session. The times are those of the lock call. "C, create only" is the floor: no lock can do with less than one
write that ZooKeeper commits.
END
}

sub compares { return 'p50'; }
sub seconds_factor { return 2; }

sub cases
{
	my ($self, $stage) = @_;
	my %job = (path => '/bench/think%d', think => 20_000);
	return {
		name        => '1 session',
		contestants => [ map { $_->($stage, %job) } \&zklock, \&c_create, \&c_textbook, \&curator, \&kazoo, \&dblink ] };
}

1;
