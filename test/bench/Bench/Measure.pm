# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Measure - what is measured: an entry of Bench::Measure::Locks or Bench::Measure::Others

=head1 SYNOPSIS

  my @measures = Bench::Measure::all();

An entry has

  name        how ONLY=... and the results call it
  title, text heading in the document, and what it is about
  cases       given the stage, a list of { name, contestants }; see Bench::Contestants

and what is not as with most of them:

  compares    the figure of which zklock is compared with the others: 'p50', or 'rate'
  places      where it is measured, of Bench::Stage's; default: in all of them
  columns     figures that its table shows; default: all that lock calls have
  finish      given the stage, undoes what cases has changed there
  rounds_factor, seconds_factor
              how many times more rounds than others it needs; how many times longer they take
  charts      list of { file, title, x, y, place, figure, match }: pictures; Bench::Chart

=cut

package Bench::Measure;

use v5.36;

use Bench::Measure::Locks;
use Bench::Measure::Others;

my %usual = (
	compares       => 'rate',
	places         => [qw(memory disk ensemble)],
	columns        => [qw(p50 p99 rate ratio requests bytes watches cpu)],
	finish         => sub { return; },
	rounds_factor  => 1,
	seconds_factor => 1,
	charts         => []);

sub all { return map { { %usual, %$_ } } @Bench::Measure::Locks::all, @Bench::Measure::Others::all; }

1;
