# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Target::Claims - slots that one caller in all may claim

=head1 SYNOPSIS

  my $verdict = Nemesis::Target::Claims->judge(@attempts);
  print "$_->{kind}: $_->{text}\n" foreach @{ $verdict->{violations} };

=head1 WHAT IS CHECKED

The client is claim_client.pl, which says what an attempt is. There is no excuse for any of these:

I<slot claimed twice>: two were told that they had claimed one slot of a path.

I<claim order>: a slot was claimed although its caller asked after another had been told that it had
claimed the same slot or a later one.

I<slot lost>: a caller was refused a slot although nobody had claimed it or a later one, nor got an
error that leaves this open.

I<unexpected error>: an error that no fault accounts for.

A claim is one write, so it takes place at a moment between C<asked> and C<told>. Nodes of claims
are not deleted by the faults: that is how an administrator makes zklock forget a claim.

=cut

package Nemesis::Target::Claims;

use v5.36;

use parent 'Nemesis::Target';

use List::Util qw(max);

# Cancelled, terminated, crashed, starting, no connection, no ZooKeeper, no worker
my $expected_error = qr/^(?:57014|57P0[123]|08...|58030|55000)$/;

my @paths = map { "/nemesis/claims/job$_" } 1 .. 2;

sub users
{
	return q{SELECT pid, 'waiting' FROM pg_stat_activity WHERE state = 'active' AND query ~ '^SELECT zk_claim'};
}

sub clients($self, $run, $count)
{
	return map {
		{ $run->sql_client($run->busy_server($_), "-claims$_"), script => 'claim_client.pl', paths => \@paths }
	} 1 .. max(4, $count);
}

sub kinds { return ('slot claimed twice', 'claim order', 'slot lost', 'unexpected error'); }

sub _describe($attempt)
{
	return sprintf('%s (%s) %.4f..%.4f', @$attempt{qw(id outcome asked told)});
}

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

sub judge($class, @attempts)
{
	my (%count, %by_path, @violations);
	foreach my $attempt (@attempts)
	{
		$count{ $attempt->{outcome} }++;
		push @{ $by_path{ $attempt->{path} } }, $attempt;
		push @violations, { kind => 'unexpected error', text => "$attempt->{id}: $attempt->{error}" }
		  if defined $attempt->{sqlstate} && $attempt->{sqlstate} !~ $expected_error;
	}
	_judge_path(\@violations, @{ $by_path{$_} }) foreach sort keys %by_path;
	return { violations => \@violations, counts => \%count };
}

sub check($self, $run, @attempts)
{
	my $verdict = $self->judge(@attempts);
	my %count   = %{ $verdict->{counts} };
	return {
		violations => $verdict->{violations},
		activity   => [ $count{claimed} || 0, $run->client_count, 'slots were claimed' ],
		summary    => [
			[ 'slots claimed', $count{claimed} || 0 ],
			[ '  refused, since others have', $count{refused} || 0 ],
			[ '  failed, not known', $count{failed} || 0 ] ] };
}

1;
