# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Target::Queues - elements that transactions take, each applied once

=head1 SYNOPSIS

  my $verdict = Nemesis::Target::Queues->judge(@attempts);
  print "$_->{kind}: $_->{text}\n" foreach @{ $verdict->{violations} };

=head1 WHAT IS CHECKED

The client is queue_client.pl, which says what an attempt is. Which transactions have committed is
settled by the servers' own record.

I<element lost>: what was offered was taken by no transaction that committed, and is not in the
queue any more.

I<applied twice>: two committed transactions of one database server have applied one element, in
spite of the table of tokens.

I<element from nowhere>: a transaction took what nobody has tried to offer.

I<unexpected error>: an error that no fault accounts for.

That an element comes again after its transaction has committed is expected, and counted: a
session may end before the element is removed.

=cut

package Nemesis::Target::Queues;

use v5.36;

use parent 'Nemesis::Target';

use List::Util qw(max);

# Cancelled, terminated, crashed, starting, no connection, no ZooKeeper, no worker, lost; and too
# many requests that were given up while ZooKeeper was silent
my $expected_error = qr/^(?:57014|57P0[123]|08...|58030|55000|40001|25P02|53200)$/;

my @paths = map { "/nemesis/queues/queue$_" } 1 .. 2;

sub prepare($self, $run)
{
	$_->safe_psql('postgres', 'CREATE TABLE tokens (queue text, token bigint, PRIMARY KEY (queue, token))')
	  foreach $run->servers;
	return;
}

sub users
{
	return q{SELECT pid, CASE state WHEN 'active' THEN 'waiting' ELSE 'held' END FROM pg_stat_activity WHERE query ~ 'queue_take|INTO tokens' AND state <> 'idle' AND pid <> pg_backend_pid()};
}

sub clients($self, $run, $count)
{
	return map {
		{ $run->sql_client($run->busy_server($_), "-queues$_"), script => 'queue_client.pl', paths => \@paths }
	} 1 .. max(4, $count);
}

sub emptied { return (@paths, '/zklock-receipts'); }

sub kinds { return ('element lost', 'applied twice', 'element from nowhere', 'false refusal', 'lost commit', 'unexpected error'); }

# Attempts whose outcomes are settled
sub judge($class, @attempts)
{
	my (%offered, %taken, %applied, %count, @violations);
	my $violation = sub ($kind, $text) { push @violations, { kind => $kind, text => $text }; };

	foreach my $attempt (@attempts)
	{
		$count{"$attempt->{action} $attempt->{outcome}"}++;
		$violation->('unexpected error', "$attempt->{id}: $attempt->{error}")
		  if defined $attempt->{sqlstate} && $attempt->{sqlstate} !~ $expected_error;
		$offered{ $attempt->{what} } = $attempt if $attempt->{action} eq 'offer';
	}
	foreach my $take (grep { $_->{action} eq 'take' && defined $_->{what} } @attempts)
	{
		$violation->('element from nowhere', "$take->{id} took $take->{what}") unless $offered{ $take->{what} };
		next unless $take->{outcome} eq 'committed';
		$count{again}++ if $taken{ $take->{what} }++;
		my $others = $applied{"$take->{server} $take->{path} $take->{what}"} ||= [];
		push @$others, $take->{id} if $take->{applied};
		$violation->('applied twice', "$take->{what}, by @$others") if $take->{applied} && @$others > 1;
	}
	foreach my $offer (grep { $_->{outcome} eq 'offered' } values %offered)
	{
		$violation->('element lost', "$offer->{path}: $offer->{what}") unless $taken{ $offer->{what} };
	}
	return { violations => \@violations, counts => \%count };
}

sub check($self, $run, @attempts)
{
	my @told    = $self->settle($run, grep { $_->{action} eq 'take' } @attempts);
	my $verdict = $self->judge(@attempts);
	my %count   = %{ $verdict->{counts} };
	return {
		violations => [ @told, @{ $verdict->{violations} } ],
		activity   => [ $count{'take committed'} || 0, $run->client_count, 'elements were taken' ],
		summary    => [
			[ 'elements offered', $count{'offer offered'} || 0 ],
			[ '  taken', $count{'take committed'} || 0 ],
			[ '  of these, again', $count{again} || 0 ],
			[ '  given back', $count{'take aborted'} || 0 ] ] };
}

1;
