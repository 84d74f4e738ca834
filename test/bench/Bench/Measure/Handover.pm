# Copyright (c) 2026, zklock contributors
#
# All sessions want the same lock.

package Bench::Measure::Handover;

use strict;
use warnings;

use parent 'Bench::Measure';

use Bench::Contestants qw(zklock advisory curator kazoo);

sub name  { return 'handover'; }
sub title { return 'All want the same lock'; }

sub text
{
	return <<'END';
All sessions lock and unlock one path, as fast as they can: in a second it changes hands so many times. They are on
one database server, or half of them on each of two; for Curator and kazoo, in one process or two.
END
}

sub cases
{
	my ($self, $stage) = @_;
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
}

sub charts
{
	return map { {
			file => "benchmark-handover-$_->[0].svg", figure => 'rate', place => 'memory', match => qr/ on $_->[1]/,
			title => "Hand-overs of one lock in a second, sessions on $_->[1]",
			x => 'sessions', y => 'hand-overs per second' } } [ one => 'one server' ], [ two => 'two servers' ];
}

1;
