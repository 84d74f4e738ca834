# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Numbers - what is made of what was measured

=head1 SYNOPSIS

  median(3, 1, 2)                       # 2; of an even number, the mean of the middle two
  percentile(99, @values)               # the smallest that 99 % of the values do not exceed
  compared(ratio => \@ours, \@theirs)   # of each round that has both; or 'difference'
  figures(\@durations, $seconds)        # { p50, p99, rate, count }; microseconds, per second
  rounded($value, $digits)              # with so many digits that count: 12345 is 12,300
  with_range($digits, $sign, @values)   # '2.5 × (2.0 to 3.0)': the median, and from where to where

All return undef, or nothing, where there is nothing to tell from.

=cut

package Bench::Numbers;

use v5.36;

use Exporter 'import';
use List::Util qw(max min);
use POSIX qw(ceil floor);

our @EXPORT_OK = qw(median percentile compared figures rounded with_range);

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

1;
