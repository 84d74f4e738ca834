# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Rounds - runs a measure: contestants in turn, many short rounds

=head1 SYNOPSIS

  my @series = Bench::Rounds::run($measure, $stage, rounds => 9, seconds => 0.5, progress => sub { ... });

In each round all cases come one after the other, and in each case all contestants, in an order that
changes from round to round. So what disturbs the machine for a while disturbs all alike, and what one
contestant has to another within a round says more than any figure by itself. Before the
first round all have run once, unmeasured.

A series is the rounds of one contestant in one case:

  { measure, case, place, contestant, rounds => [ { p50, p99, rate, count, requests, bytes, ... }, ... ] }

The n-th round of each is the same round. Figures that do not exist are missing.

=cut

package Bench::Rounds;

use v5.36;

use Bench::Meter;
use Bench::Numbers qw(figures);

# Does a contestant's run, and finds out what it has cost.
sub _measure($stage, $contestant, $seconds)
{
	my @pids = @{ $contestant->{pids} || [] };
	$contestant->{prepare}->() if $contestant->{prepare};
	my ($outcome, $cost) = Bench::Meter::around($stage->zk, \@pids, sub { $contestant->{run}->($seconds) });
	$contestant->{finish}->() if $contestant->{finish};
	delete $cost->{cpu} unless @pids;
	return {
		%{ figures($outcome->{durations}, $outcome->{seconds} || $seconds) },
		%$cost,
		%{ $outcome->{figures} || {} } };
}

# Another one begins each time, and every second time they go the other way round.
sub order($round, @contestants)
{
	push @contestants, splice(@contestants, 0, int($round / 2) % @contestants);
	return $round % 2 ? reverse @contestants : @contestants;
}

sub run($measure, $stage, %opt)
{
	my @cases  = $measure->{cases}->($stage);
	my $rounds  = $opt{rounds} * $measure->{rounds_factor};
	my $seconds = $opt{seconds} * $measure->{seconds_factor};
	my %series;
	foreach my $case (@cases)
	{
		foreach my $contestant (@{ $case->{contestants} })
		{
			$contestant->{series} = {
				measure    => $measure->{name},
				case       => $case->{name},
				place      => $stage->place,
				contestant => $contestant->{name},
				rounds     => [] };
			_measure($stage, $contestant, $seconds);
		}
	}
	foreach my $round (0 .. $rounds - 1)
	{
		$opt{progress}->($round + 1) if $opt{progress};
		foreach my $case (@cases)
		{
			foreach my $contestant (order($round, @{ $case->{contestants} }))
			{
				$contestant->{series}{rounds}[$round] = _measure($stage, $contestant, $seconds);
			}
		}
		$stage->tidy;
	}
	$measure->{finish}->($stage);
	return map { $_->{series} } map { @{ $_->{contestants} } } @cases;
}

1;
