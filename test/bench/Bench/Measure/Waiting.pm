# Copyright (c) 2026, zklock contributors
#
# What a hand-over costs while many sessions wait.

package Bench::Measure::Waiting;

use strict;
use warnings;

use parent 'Bench::Measure';

use Bench::Queue;

my @waiting = (10, 100, 1000);

sub name  { return 'waiting'; }
sub title { return 'A hand-over while many wait'; }

sub text
{
	return <<'END';
So many sessions of one server, or threads of one process, wait when the lock is released. The time is that from one
holder to the next, as long as more than half of them wait.
END
}

sub compares { return 'p50'; }

sub cases
{
	my ($self, $stage) = @_;
	return map {
		my %job = (path => '/bench/waiting', waiting => $_, counted => $_ / 2);
		{
			name        => "$_ waiting",
			contestants => [
				{ name => 'zklock',  %{ Bench::Queue::zklock($stage, %job) } },
				{ name => 'Curator', %{ Bench::Queue::curator($stage, %job) } } ] };
	} @waiting;
}

sub charts
{
	return {
		file => 'benchmark-waiting.svg', figure => 'p50', place => 'memory',
		title => 'Time from one holder to the next, by number of waiters',
		x => 'waiting', y => 'microseconds' };
}

1;
