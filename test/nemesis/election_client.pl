#!/usr/bin/perl
# Copyright (c) 2026, zklock contributors
#
# election_client.pl CONFIGURATION
#
# A client of the fault run: asks again and again whether its server leads an election, and
# if so works in that transaction. Its configuration is that of Nemesis::SqlClient with path;
# works: if not, it only asks, so no commit keeps it from asking again; and resigns: may it have
# its server resign?
#
# Each attempt has path, asked (before the question), granted (after it was answered with true,
# and the term was told; else missing), token (the term), until (before COMMIT), and an outcome: 'no' (it does not
# lead), 'asked' (it does, and that is all), or that of an attempt to lock.

use v5.36;

use FindBin;
use lib "$FindBin::Bin/lib";
use Nemesis::History qw(now);
use Nemesis::SqlClient qw(nap between);

my $client = Nemesis::SqlClient->new;
my $path   = $client->config('path');

# Ends an attempt that was told that its server leads.
sub outcome_of_error($sent_commit = undef)
{
	my $error = $client->error;
	return 'refused' if $error->{sqlstate} eq '40001';
	return $sent_commit && $error->{fatal} ? 'unknown' : 'aborted';
}

sub work($attempt)
{
	$attempt->{until} = $attempt->{granted};
	$attempt->{token} = $client->run('SELECT zk_fencing_token(?)', $path);
	return outcome_of_error() if !defined $attempt->{token};
	# The term may be a later one than the question was answered in.
	$attempt->{until} = $attempt->{granted} = now;
	return defined $client->commit ? 'asked' : outcome_of_error() if !$client->config('works');
	return outcome_of_error() if !defined $client->run('INSERT INTO attempts VALUES (?)', $attempt->{id});
	nap(between(0, rand() < 0.03 ? 2 : 0.03));
	# What was said last is that it leads still, or what the guard says.
	$attempt->{until} = now;
	return defined $client->commit ? 'committed' : outcome_of_error('commit was sent');
}

sub attempt
{
	my %attempt = ($client->begin_attempt, path => $path, guard => 'lease', scope => 'transaction');
	$attempt{outcome} = 'failed';
	$attempt{asked}   = now;
	if (defined $client->begin)
	{
		$attempt{asked} = now;
		my $leads = $client->run('SELECT zk_is_leader(?) /* election */', $path);
		if ($leads)
		{
			$attempt{granted} = now;
			$attempt{outcome} = work(\%attempt);
		}
		elsif (defined $leads)
		{
			$attempt{outcome} = 'no';
		}
	}
	$client->end_attempt(\%attempt);
	return $attempt{outcome} ne 'no';
}

# Leadership moves on, or is waited for; what becomes of that is not looked at.
sub move($leads)
{
	my %attempt = ($client->begin_attempt, path => $path, asked => now, outcome => 'move');
	$client->run($leads ? 'SELECT zk_resign(?) /* election */' : q{SELECT zk_await_leadership(?, '1 s') /* election */}, $path);
	$client->end_attempt(\%attempt);
	return;
}

until ($client->last_lap)
{
	my $leads = attempt();
	move($leads) if $client->config('resigns') && rand() < 0.03;
	nap(between(0, $client->config('works') ? 0.03 : 0.1)) unless $client->last_lap;
}

# When all is well somebody leads, and everybody can tell who.
my $somebody = 0;
until ($somebody)
{
	my %attempt = ($client->begin_attempt, path => $path, asked => now, outcome => 'move');
	my $leader = $client->run('SELECT server FROM zk_leader(?)', $path);
	$somebody = defined $leader && !%{ $client->error };
	$client->end_attempt(\%attempt);
	nap(0.1) unless $somebody;
}
attempt();
$client->disconnect;
