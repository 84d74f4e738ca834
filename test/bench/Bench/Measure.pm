# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Bench::Measure - what all measures have in common

=head1 SYNOPSIS

  my @measures = Bench::Measure->all;

A measure is a class below Bench::Measure, one file each:

  name        how ONLY=... and the results call it
  title, text heading in the document, and what it is about
  compares    the figure of which zklock is compared with the others: 'p50', or 'rate'
  places      where it is measured, of Bench::Stage's; default: in all of them
  columns     figures that its table shows; default: all that lock calls have
  available   can it be measured here? A setting or function it needs may not exist
  cases       list of { name, contestants }; see Bench::Contestants
  finish      undoes what cases has changed on the stage
  rounds_factor
              how many times more rounds than others it needs
  seconds_factor
              how many times longer its rounds take
  charts      list of { file, title, x, y, place, figure, number }: pictures; Bench::Chart

=cut

package Bench::Measure;

use strict;
use warnings;

my @all = qw(Think Closed Handover Waiting Crowd Foreign Elements Arrays Bystander Guard Leader Fleet);

sub all
{
	my ($class) = @_;
	my @measures;
	foreach my $name (@all)
	{
		require "Bench/Measure/$name.pm";
		push @measures, bless {}, "Bench::Measure::$name";
	}
	return @measures;
}

sub compares  { return 'rate'; }
sub places    { return qw(memory disk ensemble); }
sub columns   { return qw(p50 p99 rate ratio requests bytes watches cpu); }
sub available { return 1; }
sub rounds_factor { return 1; }
sub seconds_factor { return 1; }
sub finish    { return; }
sub charts    { return (); }

1;
