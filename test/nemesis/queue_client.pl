#!/usr/bin/perl
# Copyright (c) 2026, zklock contributors
#
# queue_client.pl CONFIGURATION
#
# A client of the fault run: offers elements to one of several queues, and takes elements in
# transactions, of which some are rolled back. What it takes it applies once, by means of the
# table of tokens of its database server. Its configuration is that of Nemesis::SqlClient with
# paths. In the end it takes until nothing is left.
#
# Each attempt has path, action and outcome. An 'offer' has what was offered, and is 'offered'
# or 'failed' (which leaves it open). A 'take' has what was taken, or nothing, token and
# applied, and is 'committed', 'aborted', 'unknown' or 'none'.

use v5.36;

use FindBin;
use lib "$FindBin::Bin/lib";
use Nemesis::SqlClient qw(nap between one_of);

my $client = Nemesis::SqlClient->new;

sub offer($path)
{
	my %attempt = ($client->begin_attempt, path => $path, action => 'offer');
	$attempt{what} = $attempt{id};
	$client->run(q{SELECT zk_queue_offer(?, convert_to(?, 'UTF8'))}, $path, $attempt{what});
	$attempt{outcome} = %{ $client->error } ? 'failed' : 'offered';
	$client->end_attempt(\%attempt);
	return;
}

# Takes an element. Returns false if something failed; an attempt that found none succeeds.
sub take($path, $timeout, $may_roll_back)
{
	my %attempt = ($client->begin_attempt, path => $path, action => 'take', outcome => 'aborted');
	my $taken;

	if ($client->begin)
	{
		$taken = $client->run(
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
				$attempt{outcome} = $client->commit ? 'committed' : $client->error->{fatal} ? 'unknown' : 'aborted';
			}
		}
		elsif (!%{ $client->error }) { $attempt{outcome} = 'none'; }
	}
	my $failed = %{ $client->error };
	$client->end_attempt(\%attempt);
	return !$failed && ($attempt{outcome} eq 'none' ? 'none' : 1);
}

my @paths = @{ $client->config('paths') };
until ($client->last_lap)
{
	my $path = one_of(@paths);
	rand() < 0.5 ? offer($path) : take($path, one_of('0', '200 ms'), 1);
	nap(between(0, 0.1));
}
foreach my $path (@paths)
{
	until ((take($path, '0', 0) || '') eq 'none') { nap(0.05); }
}
$client->disconnect;
