# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Schedule - which faults, when, and for how long

=head1 SYNOPSIS

  my @schedule = Nemesis::Schedule->plan(
      seed => 42, seconds => 60, session_timeout => 4, faults => [ 'stop_worker', ... ]);
  # { at => 1.7, fault => 'stop_worker', server => 2, duration => 7.1, ... }
  my @names = Nemesis::Schedule->names;

The same seed, seconds, timeout and faults give the same schedule: at which second what
begins, on which database server, how long it lasts, and its other parameters. How it
meets what the clients do is up to the machine.

There are two lanes: faults of the ensemble, and those of database servers and clients.
In each lane one follows the other, with a pause for recovery; the lanes know nothing of
each other, so that there are pairs as well.

A fault with a duration lasts, at random, for well less or well more than the session
timeout. That, and the other parameters, may be fixed: C<stop_server:long>,
C<isolate_own:long:server=2>, C<lose_reply:op=create2:nth=1>. With C<held>, which
C<isolate_own> has half of the time, a fault begins when a client of the database server
has just taken a lock that it will hold for seconds.

=cut

package Nemesis::Schedule;

use v5.36;

use Carp;

# Lane; lasts: has it a duration; takes: seconds besides that; and parameters
my %faults = (
	# A server process that stands still, or is killed
	stop_worker      => { lane => 'database', lasts => 1 },
	stop_backend     => { lane => 'database', lasts => 1 },
	stop_server      => { lane => 'database', lasts => 1 },
	kill_worker      => { lane => 'database' },
	kill_backend     => { lane => 'database' },
	terminate_worker => { lane => 'database' },
	crash_server     => { lane => 'database' },
	# What users and administrators do
	cancel             => { lane => 'database', count => [ 1, 5 ] },
	terminate          => { lane => 'database', count => [ 1, 3 ] },
	delete_own         => { lane => 'database', pick => 1 },
	delete_predecessor => { lane => 'database', pick => 1 },
	delete_parent      => { lane => 'database', pick => 1 },
	expire_session     => { lane => 'database' },
	# Between a database server and the ensemble
	cut        => { lane => 'database', lasts => 1, one => 1 },
	blackhole  => { lane => 'database', lasts => 1, one => 1, direction => [qw(both requests replies)] },
	delay      => { lane => 'database', lasts => 1, ms => [ 50, 400 ] },
	lose_reply => {
		lane => 'database', lasts => 1,
		op => [qw(create2 create2 create2 delete getChildren getData setData sync multi)], nth => [ 1, 3 ] },
	# A Java service that stands still
	stop_curator => { lane => 'database', lasts => 1 },
	# The ensemble
	kill_follower    => { lane => 'ensemble', lasts => 1 },
	kill_leader      => { lane => 'ensemble', lasts => 1 },
	stop_follower    => { lane => 'ensemble', lasts => 1 },
	stop_leader      => { lane => 'ensemble', lasts => 1 },
	isolate_follower => { lane => 'ensemble', lasts => 1 },
	isolate_leader   => { lane => 'ensemble', lasts => 1 },
	# The follower that a database server hangs on
	isolate_own => { lane => 'ensemble', lasts => 1 },
	rolling_restart  => { lane => 'ensemble', takes => 10 },
);

sub names { my @names = sort keys %faults; return @names; }

sub plan($class, %arg)
{
	my (%lanes, @schedule);
	foreach my $wanted (sort @{ $arg{faults} })
	{
		my ($name, @fixed) = split /:/, $wanted;
		croak "there is no fault $name; there are: @{[ $class->names ]}" unless $faults{$name};
		push @{ $lanes{ $faults{$name}{lane} } }, { name => $name, map { /(.*)=(.*)/ ? ($1, $2) : ($_, 1) } @fixed };
	}
	srand($arg{seed});
	foreach my $lane (sort keys %lanes)
	{
		my $at = 1 + rand(1);
		# Each in its turn before any comes again.
		my @left;
		while ($at < $arg{seconds})
		{
			@left = @{ $lanes{$lane} } unless @left;
			my $wanted = splice(@left, rand @left, 1);
			my $fault  = $faults{ $wanted->{name} };
			my %event  = (at => $at, fault => $wanted->{name}, server => int(rand(3)));
			# Always as many random numbers, whatever the fault
			my ($long, $length, @random) = map { rand() } 1 .. 6;
			$event{duration} = $arg{session_timeout}
			  * ($long < 0.5 || $wanted->{long} ? 1.4 + 0.8 * $length : 0.1 + 0.5 * $length)
			  if $fault->{lasts};
			foreach my $parameter (qw(count ms nth))
			{
				my ($low, $high) = @{ $fault->{$parameter} || next };
				$event{$parameter} = $low + int($random[0] * ($high - $low + 1));
			}
			foreach my $parameter (qw(op direction))
			{
				my $values = $fault->{$parameter} or next;
				$event{$parameter} = $values->[ $random[1] * @$values ];
			}
			# One of the ways to the ensemble, or all of them
			$event{way} = int($random[2] * 3) if $fault->{one} && $random[3] < 0.4;
			$event{pick} = int($random[2] * 1000) if $fault->{pick};
			$event{held} = 1 if $event{fault} eq 'isolate_own' && $random[2] < 0.5;
			$event{$_} = $wanted->{$_} foreach grep { !/^(?:name|long)$/ } keys %$wanted;
			push @schedule, \%event;
			$at += ($event{duration} || 0) + ($fault->{takes} || 0) + ($event{held} ? 7 : 0) + 0.5 + rand(2);
		}
	}
	return sort { $a->{at} <=> $b->{at} } @schedule;
}

# "stop_worker server=2 7.1s"
sub describe($class, $event)
{
	my %rest = %$event;
	my ($at, $name, $duration) = delete @rest{qw(at fault duration)};
	return join(' ', sprintf('%6.2f %s', $at, $name), (map { "$_=$rest{$_}" } sort keys %rest),
		defined $duration ? sprintf('%.2fs', $duration) : ());
}

1;
