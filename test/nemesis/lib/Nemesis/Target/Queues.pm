# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Target::Queues - elements that transactions take, each applied once

=head1 AN ATTEMPT

A client offers elements to one of the queues, and takes elements in transactions, of which some are
rolled back. What it takes it applies once, by means of the table of tokens of its database server. In
the end it takes until nothing is left.

An attempt has path, action and outcome. An 'offer' has what was offered, and is 'offered' or 'failed'
(which leaves it open). A 'take' has what was taken, or nothing, token and applied, and is 'committed',
'aborted', 'refused', 'unknown' or 'none'.

=cut

package Nemesis::Target::Queues;

use v5.36;

use parent 'Nemesis::Target';

use Nemesis::Client qw(between one_of);
use Zklock::Util qw(nap);

my @paths = map { "/nemesis/queues/queue$_" } 1 .. 2;

sub prepare($self, $run)
{
	$_->safe_psql('postgres', 'CREATE TABLE tokens (queue text, token bigint, PRIMARY KEY (queue, token))')
	  foreach $run->servers;
	return;
}

sub users
{
	return q{SELECT pid, CASE state WHEN 'active' THEN 'waiting' ELSE 'held' END FROM pg_stat_activity WHERE query ~ 'queue_take|INTO tokens' AND state <> 'idle'};
}

sub _offer($client, $path)
{
	my %attempt = ($client->begin_attempt, path => $path, action => 'offer');
	$attempt{what} = $attempt{id};
	$client->run(q{SELECT zk_queue_offer(?, convert_to(?, 'UTF8'))}, $path, $attempt{what});
	$attempt{outcome} = %{ $client->error } ? 'failed' : 'offered';
	$client->end_attempt(\%attempt);
	return;
}

# Takes an element. Returns false if something failed, 'none' if there was none.
sub _take($client, $path, $timeout, $may_roll_back)
{
	my %attempt = ($client->begin_attempt, path => $path, action => 'take', outcome => 'aborted');
	if ($client->begin)
	{
		my $taken = $client->run(
			q{SELECT token || ' ' || convert_from(data, 'UTF8') FROM zk_xact_queue_take(?, ?::interval)}, $path, $timeout);
		if (defined $taken)
		{
			@attempt{qw(token what)} = split / /, $taken;
			$attempt{applied} = 0 + ($client->run(
				'INSERT INTO tokens VALUES (?, ?) ON CONFLICT DO NOTHING', $path, $attempt{token}) || 0);
			$client->run('INSERT INTO attempts VALUES (?)', $attempt{id}) unless %{ $client->error };
			nap(between(0, 0.05)) unless $client->last_lap;
			if (!%{ $client->error } && !($may_roll_back && rand() < 0.2))
			{
				$attempt{outcome} = $client->commit;
			}
		}
		elsif (!%{ $client->error }) { $attempt{outcome} = 'none'; }
	}
	my $failed = %{ $client->error };
	$client->end_attempt(\%attempt);
	return !$failed && $attempt{outcome};
}

sub turn($self, $client)
{
	my $path = one_of(@paths);
	rand() < 0.5 ? _offer($client, $path) : _take($client, $path, one_of('0', '200 ms'), 1);
	nap(between(0, 0.1));
	return;
}

sub last_turn($self, $client)
{
	foreach my $path (@paths)
	{
		nap(0.05) until _take($client, $path, '0', 0) eq 'none';
	}
	return;
}

sub emptied { return (@paths, '/zklock-receipts'); }
sub kinds { return ('element lost', 'applied twice', 'element from nowhere'); }

sub judge($self, %history)
{
	my @attempts = @{ $history{attempts} };
	# Lost; in a transaction that has failed; too many requests that were given up while ZooKeeper was silent
	my @violations = Nemesis::Target::unexpected_errors(\@attempts, qw(40001 25P02 53200));
	my $violation  = sub ($kind, $text) { push @violations, { kind => $kind, text => $text }; };
	my (%offered, %taken, %applied, %count);
	foreach my $attempt (@attempts)
	{
		$count{"$attempt->{action} $attempt->{outcome}"}++;
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

sub settles($self, $attempt) { return $attempt->{action} eq 'take'; }
sub activity { return ('take committed' => 'elements were taken'); }

sub summary
{
	return (
		[ 'elements offered', 'offer offered' ], [ '  taken', 'take committed' ],
		[ '  of these, again', 'again' ], [ '  given back', 'take aborted', 'take refused' ]);
}

1;
