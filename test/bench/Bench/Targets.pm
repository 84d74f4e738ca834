# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Targets - what zklock is to reach, and whether it does

=head1 SYNOPSIS

  my @results = Bench::Targets::results(@series);
  # { text, column, with, place, value, figure, limit, reached, rounds }, for each target that was measured, in each place
  print Bench::Targets::markdown(@series);

A target compares one contestant with another within each round, and takes the median; or it
is about a figure by itself.

=cut

package Bench::Targets;

use v5.36;
use utf8;

use Bench::Figures qw(median with_range find values_of against table %columns);
use Bench::Measure;

# measure, case, contestant, with whom it is compared (in another case: "case: contestant"), how, figure, limit
my @targets = (
	[ guarded => '1 thread', zklock => 'Curator', ratio => rate => 'at least' => 2 ],
	[ guarded => '16 threads, a path each', zklock => 'Curator', ratio => rate => 'at least' => 3 ],
	[ guarded => '16 threads, paths never locked twice', zklock => 'Curator', ratio => rate => 'at least' => 1.3 ],
	[ guarded => '16 threads, 10,000 paths at random', 'zklock, keep_idle = 10s' => 'Curator', ratio => rate => 'at least' => 2.5 ],
	[ think => '1 session', zklock => 'C, create only', ratio => p50 => 'at most' => 1.25 ],
	[ think => '1 session', zklock => 'Curator', ratio => p50 => 'at most' => 0.35 ],
	[ closed => '16 sessions', zklock => 'C, create and delete', ratio => rate => 'at least' => 0.85 ],
	[ closed => '16 sessions', zklock => 'Curator', ratio => rate => 'at least' => 3.3 ],
	[ closed => '16 sessions', zklock => undef, value => cpu => 'at most' => 60 ],
	[ closed => '16 sessions', zklock => undef, value => requests => 'at most' => 0.05 ],
	[ paths => 'never locked twice', zklock => 'Curator', ratio => rate => 'at least' => 1.4 ],
	[ paths => '10,000 at random', 'zklock, keep_idle = 10s' => 'Curator', ratio => rate => 'at least' => 3 ],
	[ paths => '10,000 at random', 'zklock, keep_idle = 10s' => 'etcd', ratio => rate => 'at least' => 2 ],
	[ handover => '16 sessions on one server', zklock => 'Curator', ratio => rate => 'at least' => 5.5 ],
	[ handover => '16 sessions on one server', zklock => 'pg_advisory_lock', ratio => rate => 'at least' => 0.8 ],
	[ handover => '2 sessions on two servers', zklock => 'Curator', ratio => rate => 'at least' => 1.05 ],
	[ handover => '16 sessions on two servers', zklock => 'Curator', ratio => rate => 'at least' => 2.8 ],
	[ waiting => '1000 waiting', zklock => '10 waiting: zklock', ratio => p50 => 'at most' => 1.3 ],
	[ foreign => '5000 nodes', zklock => '10 nodes: zklock', ratio => p50 => 'at most' => 1.3 ],
	[ foreign => '5000 nodes', zklock => '10 nodes: zklock', ratio => bytes => 'at most' => 1.3 ],
	[ arrays => '1000 paths', zklock => 'C, create only', ratio => p50 => 'at most' => 3 ],
	[ bystander => 'select-only', zklock => 'not loaded', ratio => rate => 'at least' => 0.99 ],
	[ bystander => 'tpcb', zklock => 'not loaded', ratio => rate => 'at least' => 0.99 ],
	[ guard => 'a commit', lease => 'off', difference => p50 => 'at most' => 5 ],
	[ leader => 'a call', zk_is_leader => 'pg_backend_pid', difference => p50 => 'at most' => 1 ]);

# What a target compares, round by round; nothing if it was not measured in this place
sub _values($target, $place, @series)
{
	my ($measure, $case, $contestant, $with, $how, $figure) = @$target;
	my $ours = find($measure, $place, $case, $contestant, @series) or return ();
	return values_of($ours, $figure) unless defined $with;
	my ($its_case, $other) = $with =~ /^(.*): (.*)$/ ? ($1, $2) : ($case, $with);
	my $theirs = find($measure, $place, $its_case, $other, @series) or return ();
	return against($how, $figure, $ours, $theirs);
}

sub results(@series)
{
	my %title = map { $_->{name} => $_->{title} } Bench::Measure::all();
	my @results;
	foreach my $target (@targets)
	{
		my ($measure, $case, $contestant, $with, $how, $figure, $direction, $limit) = @$target;
		foreach my $place (qw(memory disk ensemble))
		{
			my @values = grep { defined } _values($target, $place, @series) or next;
			my $value  = median(@values);
			push @results, {
				text    => "$title{$measure}, $case: $contestant",
				with    => defined $with ? "$how to $with" : '',
				column  => $columns{$figure},
				place   => $place,
				value   => $value,
				figure  => with_range(3, '', @values),
				limit   => "$direction $limit",
				reached => $direction eq 'at most' ? $value <= $limit : $value >= $limit,
				rounds  => scalar @values };
		}
	}
	return @results;
}

sub markdown(@series)
{
	my @results = results(@series) or return '';
	return table(
		5, [ 'target', 'figure', '', 'ZooKeeper', 'limit', 'median of the rounds', 'rounds', '' ],
		map { [ @{$_}{qw(text column with place limit figure rounds)}, $_->{reached} ? 'reached' : '**missed**' ] } @results);
}

1;
