# Copyright (c) 2026, zklock contributors
#
# What a hand-over costs while many nodes of others are queued.

package Bench::Measure::Foreign;

use strict;
use warnings;

use parent 'Bench::Measure';

use Bench::Queue;

sub name  { return 'foreign'; }
sub title { return 'A hand-over between servers with many nodes queued'; }

sub text
{
	return <<'END';
32 sessions wait, by turns on one and the other of two servers (for Curator: processes), and behind them so many nodes
of another client. The time is that from one holder to the next.
END
}

sub compares { return 'p50'; }

sub cases
{
	my ($self, $stage) = @_;
	return map {
		my %job = (path => '/bench/foreign', waiting => 32, servers => 2, foreigners => $_);
		{
			name        => "$_ nodes",
			contestants => [
				{ name => 'zklock',  %{ Bench::Queue::zklock($stage, %job) } },
				{ name => 'Curator', %{ Bench::Queue::curator($stage, %job) } } ] };
	} 10, 1000, 5000;
}

1;
