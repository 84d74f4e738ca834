#!/usr/bin/perl
# Copyright (c) 2026, zklock contributors
#
# claim_client.pl CONFIGURATION
#
# A client of the fault run: claims slots on one of several paths, as a job would that is
# scheduled on each server. Its configuration is that of Nemesis::SqlClient with paths. A slot
# is a tick of the clock that all have in common, so that many ask for the same at once; some
# ask late, for a slot that others have passed.
#
# Each attempt has path, slot (a number), asked, and an outcome: 'claimed' (true), 'refused'
# (false) or 'failed' (an error, which leaves open whether the slot was claimed).

use v5.36;

use FindBin;
use lib "$FindBin::Bin/lib";
use Nemesis::History qw(now);
use Nemesis::SqlClient qw(nap between one_of);

my $client = Nemesis::SqlClient->new;
my $tick   = 0.25;                          # seconds

sub attempt($path, $slot)
{
	my %attempt = ($client->begin_attempt, path => $path, slot => $slot);

	$attempt{asked} = now;
	my $claimed = $client->run("SELECT zk_claim(?, timestamptz '2000-01-01 00:00+00' + ? * interval '1 s')", $path, $slot);
	$attempt{outcome} = !defined $claimed ? 'failed' : $claimed ? 'claimed' : 'refused';
	$client->end_attempt(\%attempt);
	return $attempt{outcome} ne 'failed';
}

my @paths = @{ $client->config('paths') };
until ($client->last_lap)
{
	my $slot = int(now / $tick);
	attempt(one_of(@paths), rand() < 0.1 ? $slot - one_of(1 .. 8) : $slot);

	# Until the next tick, as the schedulers of all servers do
	nap(between(0, 0.02) + $tick * (1 + int(now / $tick)) - now) unless $client->last_lap;
}
foreach my $path (@paths)
{
	nap(0.1) until attempt($path, int(now / $tick));
}
$client->disconnect;
