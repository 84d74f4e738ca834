# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Target::Claims - slots that one caller in all may claim

=head1 AN ATTEMPT

A client claims slots on one of the paths, as a job would that is scheduled on each server. A slot is a
tick of the clock that all have in common, so that many ask for the same at once; some ask late, for a
slot that others have passed.

An attempt has path, slot (a number), asked, and an outcome: 'claimed' (true), 'refused' (false) or
'failed' (an error, which leaves open whether the slot was claimed).

A claim is one write, so it takes place at a moment between C<asked> and C<told>. Nodes of claims
are not deleted by the faults: that is how an administrator makes zklock forget a claim.

=cut

package Nemesis::Target::Claims;

use v5.36;

use parent 'Nemesis::Target';

use List::Util qw(max);
use Nemesis::Client qw(between one_of);
use Nemesis::History qw(now);
use Zklock::Util qw(nap);

my @paths = map { "/nemesis/claims/job$_" } 1 .. 2;
my $tick  = 0.25;                           # seconds

sub users { return q{SELECT pid, 'waiting' FROM pg_stat_activity WHERE state = 'active' AND query ~ '^SELECT zk_claim'}; }

sub _attempt($client, $path, $slot)
{
	my %attempt = ($client->begin_attempt, path => $path, slot => $slot);
	$attempt{asked} = now;
	my $claimed = $client->run("SELECT zk_claim(?, timestamptz '2000-01-01 00:00+00' + ? * interval '1 s')", $path, $slot);
	$attempt{outcome} = !defined $claimed ? 'failed' : $claimed ? 'claimed' : 'refused';
	$client->end_attempt(\%attempt);
	return $attempt{outcome} ne 'failed';
}

sub turn($self, $client)
{
	my $slot = int(now / $tick);
	_attempt($client, one_of(@paths), rand() < 0.1 ? $slot - one_of(1 .. 8) : $slot);

	# Until the next tick, as the schedulers of all servers do
	nap(between(0, 0.02) + $tick * (1 + int(now / $tick)) - now) unless $client->last_lap;
	return;
}

sub last_turn($self, $client)
{
	foreach my $path (@paths)
	{
		nap(0.1) until _attempt($client, $path, int(now / $tick));
	}
	return;
}

sub kinds { return ('slot claimed twice', 'claim order', 'slot lost'); }
sub _describe($attempt) { return sprintf('%s (%s) %.4f..%.4f', @$attempt{qw(id outcome asked told)}); }

# The attempts of one path. Appends to the violations.
sub _judge_path($violations, @attempts)
{
	my $violation = sub ($kind, $attempt, $rest) {
		push @$violations, { kind => $kind, text => "$attempt->{path}, slot $attempt->{slot}: $rest" };
	};

	my %owner;
	foreach my $claim (grep { $_->{outcome} eq 'claimed' } @attempts)
	{
		my $other = $owner{ $claim->{slot} };
		$violation->('slot claimed twice', $claim, _describe($other) . ' and ' . _describe($claim)) if $other;
		$owner{ $claim->{slot} } ||= $claim;
	}

	# In the order of asking: what others had been told by then
	my @told = sort { $a->{told} <=> $b->{told} } grep { $_->{outcome} eq 'claimed' } @attempts;
	my $latest;
	foreach my $attempt (sort { $a->{asked} <=> $b->{asked} } @attempts)
	{
		while (@told && $told[0]{told} < $attempt->{asked})
		{
			my $claim = shift @told;
			$latest = $claim if !$latest || $claim->{slot} > $latest->{slot};
		}
		$violation->('claim order', $attempt, _describe($attempt) . " after slot $latest->{slot}, " . _describe($latest))
		  if $attempt->{outcome} eq 'claimed' && $latest && $latest->{slot} >= $attempt->{slot}
		  && ($owner{ $attempt->{slot} } == $attempt);
	}

	# In the order of being told: what others may have claimed by then
	my @asked = sort { $a->{asked} <=> $b->{asked} } grep { $_->{outcome} ne 'refused' } @attempts;
	my $highest;
	foreach my $attempt (sort { $a->{told} <=> $b->{told} } grep { $_->{outcome} eq 'refused' } @attempts)
	{
		while (@asked && $asked[0]{asked} < $attempt->{told})
		{
			$highest = max grep { defined } $highest, (shift @asked)->{slot};
		}
		$violation->('slot lost', $attempt, _describe($attempt))
		  unless defined $highest && $highest >= $attempt->{slot};
	}
	return;
}

sub judge($self, %history)
{
	my @violations = Nemesis::Target::unexpected_errors($history{attempts});
	my %by_path    = Nemesis::Target::by_path(@{ $history{attempts} });
	_judge_path(\@violations, @{ $by_path{$_} }) foreach sort keys %by_path;
	return { violations => \@violations, counts => { Nemesis::Target::outcomes(@{ $history{attempts} }) } };
}

sub activity { return (claimed => 'slots were claimed'); }

sub summary
{
	return ([ 'slots claimed', 'claimed' ], [ '  refused, since others have', 'refused' ], [ '  failed, not known', 'failed' ]);
}

1;
