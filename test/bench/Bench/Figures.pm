# Copyright (c) 2026, zklock contributors

=encoding utf8

=head1 NAME

Bench::Figures - what is made of what was measured: numbers, and tables of them

=head1 SYNOPSIS

  median(3, 1, 2)                       # 2; of an even number, the mean of the middle two
  percentile(99, @values)               # the smallest that 99 % of the values do not exceed
  compared(ratio => \@ours, \@theirs)   # of each round that has both; or 'difference'
  figures(\@durations, $seconds)        # { p50, p99, rate, count }; microseconds, per second
  still(@rates)                         # do the last three differ by less than 5 %?
  rounded($value, $digits)              # with so many digits that count: 12345 is 12,300
  with_range($digits, $sign, @values)   # '2.5 × (2.0 to 3.0)': the median, and from where to where

  my $series = find($measure, $place, $case, $contestant, @series);
  values_of($series, 'p50')             # of all its rounds
  against(ratio => 'p50', $ours, $theirs)

  print table_of($measure, @series);    # a row for each
  print table(1, [ 'what', 'how much' ], [ 'seconds', 7 ], ...);    # one column of words

Where there is nothing to tell from it is undef, or nothing.

In a measure's table a figure is the median of the rounds. The columns
C<ratio> and C<difference> compare zklock with the row within each round, and show the median of that, with its
range: what zklock's figure is, divided by the row's, or the row's less that of the first of its case.

=cut

package Bench::Figures;

use v5.36;
use utf8;

use Exporter 'import';
use List::Util qw(first max min);
use POSIX qw(ceil floor);

our @EXPORT_OK = qw(median percentile compared figures still rounded with_range find values_of against table_of table %columns);

sub median
{
	my @sorted = sort { $a <=> $b } grep { defined } @_;
	return undef unless @sorted;
	my $middle = @sorted / 2;
	return @sorted % 2 ? $sorted[$middle] : ($sorted[ $middle - 1 ] + $sorted[$middle]) / 2;
}

sub percentile($percent, @values)
{
	return undef unless @values;
	my @sorted = sort { $a <=> $b } @values;
	return $sorted[ max(0, ceil(@sorted * $percent / 100) - 1) ];
}

sub compared($how, $ours, $theirs)
{
	my @both = grep { defined $ours->[$_] && defined $theirs->[$_] } 0 .. $#$ours;
	return map { $ours->[$_] - $theirs->[$_] } @both if $how eq 'difference';
	return map { $ours->[$_] / $theirs->[$_] } grep { $theirs->[$_] } @both;
}

sub figures($durations, $seconds)
{
	return {
		count => scalar @$durations,
		rate  => @$durations / $seconds,
		p50   => percentile(50, @$durations),
		p99   => percentile(99, @$durations) };
}

sub still(@rates)
{
	return 0 if @rates < 3;
	my @last = @rates[ -3 .. -1 ];
	return max(@last) < 1.05 * min(@last);
}

sub rounded($value, $digits)
{
	return undef unless defined $value;
	return '0' if $value == 0;
	my $places = $digits - 1 - floor(log(abs $value) / log(10) + 1e-9);
	my $unit   = $places < 0 ? 10**-$places : 1;
	my $text   = sprintf('%.*f', max($places, 0), $unit * sprintf('%.*f', max($places, 0), $value / $unit));
	1 while $text =~ s/^(-?\d+)(\d{3})/$1,$2/;
	return $text;
}

sub with_range($digits, $sign, @values)
{
	return '' unless @values;
	my ($middle, $from, $to) = map { rounded($_, $digits) } median(@values), min(@values), max(@values);
	return "$middle$sign ($from to $to)";
}

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
	server_cpu => 'ZooKeeper CPU µs',
	switches   => 'switches');

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

sub table_of($measure, @rows)
{
	my @figures = map { $_ eq 'ratio' ? "zklock's $measure->{compares} is" : $columns{$_} } @{ $measure->{columns} };
	return table(2, [ 'case', 'contestant', @figures ], map {
		my $row  = $_;
		my @case = grep { $_->{case} eq $row->{case} } @rows;
		my $name = $row == $case[0] ? $row->{case} : '';
		[ $name, $row->{contestant}, map { _cell($measure, $row, $_, @case) } @{ $measure->{columns} } ]
	} @rows);
}

# The first columns are words, the others numbers.
sub table($words, $heading, @rows)
{
	my @rule = map { $_ < $words ? '---' : '--:' } 0 .. $#$heading;
	return join('', map { '| ' . join(' | ', @$_) . " |\n" } $heading, \@rule, @rows);
}

1;
