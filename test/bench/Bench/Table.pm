# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Table - the rounds of a measure as rows of a table

=head1 SYNOPSIS

  print Bench::Table::markdown($measure, @rows);
  print Bench::Table::lines(1, [ 'what', 'how much' ], [ 'seconds', 7 ], ...);    # one column of words

  my $series = Bench::Table::find($measure, $place, $case, $contestant, @series);
  my @values = Bench::Table::values_of($series, 'p50');
  my @ratios = Bench::Table::against(ratio => 'p50', $ours, $theirs);    # or 'difference'

Each row is a series, that is a contestant in a case. A figure is the median of the rounds. The columns
C<ratio> and C<difference> compare zklock with the row within each round, and show the median of that, with its
range: what zklock's figure is, divided by the row's, or the row's less that of the first of its case.

=cut

package Bench::Table;

use v5.36;
use utf8;

use Bench::Numbers qw(compared median rounded with_range);
use List::Util qw(first);

# How figures are called
our %columns = (
	p50        => 'p50 µs',
	p99        => 'p99 µs',
	rate       => 'per second',
	difference => 'more, µs',
	requests   => 'requests',
	bytes      => 'bytes',
	watches    => 'watches',
	cpu        => 'client CPU µs',
	server_cpu => 'ZooKeeper CPU µs');

sub find($measure, $place, $case, $contestant, @series)
{
	my $wanted = join("\n", $measure, $place, $case, $contestant);
	return first { join("\n", @{$_}{qw(measure place case contestant)}) eq $wanted } @series;
}

# A figure, of all rounds of a series
sub values_of($series, $figure) { return map { $_->{$figure} } @{ $series->{rounds} }; }

sub against($how, $figure, @series) { return compared($how, map { [ values_of($_, $figure) ] } @series); }

sub _cell($measure, $row, $column, @case)
{
	my $figure = $measure->{compares};
	if ($column eq 'ratio')
	{
		my $zklock = first { $_->{contestant} eq 'zklock' } @case;
		return !$zklock || $zklock == $row ? '' : with_range(3, ' ×', against(ratio => $figure, $zklock, $row));
	}
	if ($column eq 'difference')
	{
		return $row == $case[0] ? '' : with_range(2, '', against(difference => $figure, $row, $case[0]));
	}
	my $value   = median(values_of($row, $column));
	my $is_rare = $column =~ /^(?:requests|watches)$/;
	# What heartbeats add to nothing
	return '0' if defined $value && $is_rare && $value < 0.05;
	return rounded($value, $is_rare ? 2 : 3) // '';
}

# Lists of cells
sub cells($measure, @rows)
{
	return map {
		my $row  = $_;
		my @case = grep { $_->{case} eq $row->{case} } @rows;
		my $name = $row == $case[0] ? $row->{case} : '';
		[ $name, $row->{contestant}, map { _cell($measure, $row, $_, @case) } @{ $measure->{columns} } ]
	} @rows;
}

sub markdown($measure, @rows)
{
	my @figures = map { $_ eq 'ratio' ? "zklock's $measure->{compares} is" : $columns{$_} } @{ $measure->{columns} };
	return lines(2, [ 'case', 'contestant', @figures ], cells($measure, @rows));
}

# The first columns are words, the others numbers.
sub lines($words, $heading, @rows)
{
	my @rule = map { $_ < $words ? '---' : '--:' } 0 .. $#$heading;
	return join('', map { '| ' . join(' | ', @$_) . " |\n" } $heading, \@rule, @rows);
}

1;
