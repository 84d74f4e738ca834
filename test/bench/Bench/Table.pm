# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Table - the rounds of a measure as rows of a table

=head1 SYNOPSIS

  my $table = Bench::Table->new($measure, $place, @series);
  print $table->markdown;

Each row is a contestant in a case. A figure is the median of the rounds. The columns C<ratio> and
C<difference> compare zklock with the row within each round, and show the median of that, with its
range: what zklock's figure is, divided by the row's, or the row's less that of the first of its case.

=cut

package Bench::Table;

use v5.36;
use utf8;

use Bench::Numbers qw(median ratios differences rounded);
use List::Util qw(first max min);

my %columns = (
	p50        => 'p50 µs',
	p99        => 'p99 µs',
	rate       => 'per second',
	difference => 'more, µs',
	requests   => 'requests',
	bytes      => 'bytes',
	watches    => 'watches',
	cpu        => 'client CPU µs',
	server_cpu => 'ZooKeeper CPU µs');

sub new($class, $measure, $place, @series)
{
	my @rows = grep { $_->{measure} eq $measure->name && $_->{place} eq $place } @series;
	return bless { measure => $measure, rows => \@rows }, $class;
}

sub rows { return @{ $_[0]{rows} }; }

# A contestant's series
sub find($measure, $place, $case, $contestant, @series)
{
	my $wanted = join("\n", $measure, $place, $case, $contestant);
	return first { join("\n", @{$_}{qw(measure place case contestant)}) eq $wanted } @series;
}

# A figure, of all rounds of a series
sub values_of($series, $figure) { return map { $_->{$figure} } @{ $series->{rounds} }; }

sub _range($digits, $sign, @values)
{
	@values = grep { defined } @values;
	return '' unless @values;
	my ($middle, $from, $to) = map { rounded($_, $digits) } median(@values), min(@values), max(@values);
	return "$middle$sign ($from to $to)";
}

sub _cell($self, $row, $column)
{
	my $figure = $self->{measure}->compares;
	my @case   = grep { $_->{case} eq $row->{case} } $self->rows;
	if ($column eq 'ratio')
	{
		my $zklock = first { $_->{contestant} eq 'zklock' } @case;
		return '' if !$zklock || $zklock == $row;
		return _range(3, ' ×', ratios([ values_of($zklock, $figure) ], [ values_of($row, $figure) ]));
	}
	if ($column eq 'difference')
	{
		return '' if $row == $case[0];
		return _range(2, '', differences([ values_of($row, $figure) ], [ values_of($case[0], $figure) ]));
	}
	my $value = median(values_of($row, $column));
	# What heartbeats add to nothing
	return '0' if defined $value && $column =~ /^(requests|watches)$/ && $value < 0.05;
	return rounded($value, $column =~ /^(requests|watches)$/ ? 2 : 3) // '';
}

sub heading($self)
{
	my $compared = { p50 => "zklock's p50 is", rate => "zklock's rate is" }->{ $self->{measure}->compares };
	return ('case', 'contestant', map { $_ eq 'ratio' ? $compared : $columns{$_} } $self->{measure}->columns);
}

# Lists of cells
sub cells($self)
{
	my $last = '';
	return map {
		my $row  = $_;
		my $case = $row->{case} eq $last ? '' : $row->{case};
		$last = $row->{case};
		[ $case, $row->{contestant}, map { $self->_cell($row, $_) } $self->{measure}->columns ]
	} $self->rows;
}

sub markdown($self)
{
	my @heading = $self->heading;
	return join('', map { "| " . join(' | ', @$_) . " |\n" } \@heading,
		[ map { $_ < 2 ? '---' : '--:' } 0 .. $#heading ], $self->cells);
}

1;
