# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Targets - what zklock is to reach, and whether it does

=head1 SYNOPSIS

  my @results = Bench::Targets::results(@series);
  # { text, place, value, figure, limit, reached, rounds }, for each target that was measured, in each place
  print Bench::Targets::markdown(@series);

A target compares one contestant with another within each round, and takes the median; or it
is about a figure by itself.

=cut

package Bench::Targets;

use v5.36;
use utf8;

use Bench::Numbers qw(median with_range);
use Bench::Table;

# text, measure, [case, contestant] of what is to be compared, [case, contestant] with what (or none), figure,
# how ('ratio' or 'difference'), at least ('>=') or at most ('<='), limit
my @targets = (
	[ 'lock with think time: p50, to one committed create',
		think => [ '1 session', 'zklock' ], [ '1 session', 'C, create only' ], p50 => ratio => '<=' => 1.25 ],
	[ 'lock with think time: p50, to Curator',
		think => [ '1 session', 'zklock' ], [ '1 session', 'Curator' ], p50 => ratio => '<=' => 0.4 ],
	[ '16 sessions, distinct paths: throughput, to pairs in C',
		closed => [ '16 sessions', 'zklock' ], [ '16 sessions', 'C, create and delete' ], rate => ratio => '>=' => 0.85 ],
	[ '16 sessions, distinct paths: throughput, to Curator',
		closed => [ '16 sessions', 'zklock' ], [ '16 sessions', 'Curator' ], rate => ratio => '>=' => 1.2 ],
	[ '16 sessions, distinct paths: worker CPU per lock and unlock, µs',
		closed => [ '16 sessions', 'zklock' ], undef, cpu => value => '<=' => 60 ],
	[ 'one path, 16 sessions on one server: throughput, to Curator',
		handover => [ '16 sessions on one server', 'zklock' ], [ '16 sessions on one server', 'Curator' ],
		rate => ratio => '>=' => 10 ],
	[ 'one path, 16 sessions on one server: throughput, to pg_advisory_lock',
		handover => [ '16 sessions on one server', 'zklock' ], [ '16 sessions on one server', 'pg_advisory_lock' ],
		rate => ratio => '>=' => 0.8 ],
	[ 'one path, 2 sessions on two servers: throughput, to Curator',
		handover => [ '2 sessions on two servers', 'zklock' ], [ '2 sessions on two servers', 'Curator' ],
		rate => ratio => '>=' => 1.2 ],
	[ 'one path, 16 sessions on two servers: throughput, to Curator',
		handover => [ '16 sessions on two servers', 'zklock' ], [ '16 sessions on two servers', 'Curator' ],
		rate => ratio => '>=' => 5 ],
	[ 'hand-over with 1,000 waiting: time, to that with 10',
		waiting => [ '1000 waiting', 'zklock' ], [ '10 waiting', 'zklock' ], p50 => ratio => '<=' => 1.3 ],
	[ 'hand-over with 5,000 foreign nodes queued: time, to that with 10',
		foreign => [ '5000 nodes', 'zklock' ], [ '10 nodes', 'zklock' ], p50 => ratio => '<=' => 1.3 ],
	[ 'hand-over with 5,000 foreign nodes queued: bytes, to that with 10',
		foreign => [ '5000 nodes', 'zklock' ], [ '10 nodes', 'zklock' ], bytes => ratio => '<=' => 1.3 ],
	[ '1,000 free paths in one call: time, to as many creates in C',
		arrays => [ '1000 paths', 'zklock' ], [ '1000 paths', 'C, create only' ], p50 => ratio => '<=' => 3 ],
	[ 'select-only without zklock functions: throughput, to not loaded',
		bystander => [ 'select-only', 'zklock' ], [ 'select-only', 'not loaded' ], rate => ratio => '>=' => 0.99 ],
	[ 'tpcb without zklock functions: throughput, to not loaded',
		bystander => [ 'tpcb', 'zklock' ], [ 'tpcb', 'not loaded' ], rate => ratio => '>=' => 0.99 ],
	[ 'commit guard lease: µs per commit',
		guard => [ 'a commit', 'lease' ], [ 'a commit', 'off' ], p50 => difference => '<=' => 5 ],
	[ 'zk_is_leader: µs per call',
		leader => [ 'a call', 'zk_is_leader' ], [ 'a call', 'pg_backend_pid' ], p50 => difference => '<=' => 1 ]);

# What a target compares, round by round; nothing if it was not measured in this place
sub _values($target, $place, @series)
{
	my (undef, $measure, $what, $with, $figure, $how) = @$target;
	my $ours = Bench::Table::find($measure, $place, @$what, @series) or return ();
	return Bench::Table::values_of($ours, $figure) unless $with;
	my $theirs = Bench::Table::find($measure, $place, @$with, @series) or return ();
	return Bench::Table::against($how, $figure, $ours, $theirs);
}

sub results(@series)
{
	my @results;
	foreach my $target (@targets)
	{
		my ($text, $direction, $limit) = @{$target}[ 0, 6, 7 ];
		foreach my $place (qw(memory disk ensemble))
		{
			my @values = grep { defined } _values($target, $place, @series) or next;
			my $value  = median(@values);
			push @results, {
				text    => $text,
				place   => $place,
				value   => $value,
				figure  => with_range(3, '', @values),
				limit   => ($direction eq '<=' ? 'at most ' : 'at least ') . $limit,
				reached => $direction eq '<=' ? $value <= $limit : $value >= $limit,
				rounds  => scalar @values };
		}
	}
	return @results;
}

sub markdown(@series)
{
	my @results = results(@series) or return '';
	return Bench::Table::lines(
		3, [ 'target', 'ZooKeeper', 'limit', 'median of the rounds', 'rounds', '' ],
		map { [ @{$_}{qw(text place limit figure rounds)}, $_->{reached} ? 'reached' : '**missed**' ] } @results);
}

1;
