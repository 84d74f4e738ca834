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

# Faults of a lane with what they have in common. lasts: have they a duration; takes: seconds besides that; and parameters
sub of($lane, $fault, @names) { return map { $_ => { lane => $lane, %$fault } } @names; }

my %faults = (
	# A server process, or a Java service, that stands still; or a server process that is killed, or ended
	of('database', { lasts => 1 }, qw(stop_worker stop_backend stop_server stop_curator)),
	of('database', {}, qw(kill_worker kill_backend terminate_worker crash_server)),
	# What users and administrators do
	of('database', { count => [ 1, 5 ] }, 'cancel'),
	of('database', { count => [ 1, 3 ] }, 'terminate'),
	of('database', { pick => 1 }, qw(delete_own delete_predecessor delete_parent)),
	of('database', {}, 'expire_session'),
	# Between a database server and the ensemble
	of('database', { lasts => 1, one => 1 }, qw(cut move)),
	of('database', { lasts => 1, one => 1, direction => [qw(both requests replies)] }, 'blackhole'),
	of('database', { lasts => 1, ms => [ 50, 400 ] }, 'delay'),
	of('database', {
			lasts => 1, nth => [ 1, 3 ],
			op => [qw(create2 create2 create2 delete getChildren getData setData sync multi)] }, 'lose_reply'),
	# The ensemble; isolate_own is of the follower that a database server hangs on
	of('ensemble', { lasts => 1 }, map({ ("${_}_follower", "${_}_leader") } qw(kill stop isolate)), 'isolate_own'),
	of('ensemble', { takes => 10 }, 'rolling_restart'),
	# What is to stay is lost, too: not for claims, queues and terms
	of('ensemble', { lasts => 1, long => 1, takes => 10, asked => 1 }, 'wipe'));

# All that come unless others are asked for
sub names { my @names = grep { !$faults{$_}{asked} } sort keys %faults; return @names; }

sub plan($class, %arg)
{
	my (%lanes, @schedule);
	foreach my $wanted (sort @{ $arg{faults} })
	{
		my ($name, @fixed) = split /:/, $wanted;
		croak "there is no fault $name; there are: @{[ sort keys %faults ]}" unless $faults{$name};
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
			  * ($long < 0.5 || $wanted->{long} || $fault->{long} ? 1.4 + 0.8 * $length : 0.1 + 0.5 * $length)
			  if $fault->{lasts};
			foreach my $parameter (grep { $fault->{$_} } qw(count ms nth))
			{
				my ($low, $high) = @{ $fault->{$parameter} };
				$event{$parameter} = $low + int($random[0] * ($high - $low + 1));
			}
			$event{$_} = $fault->{$_}[ $random[1] * @{ $fault->{$_} } ] foreach grep { $fault->{$_} } qw(op direction);
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
