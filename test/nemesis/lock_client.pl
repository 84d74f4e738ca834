#!/usr/bin/perl
# Copyright (c) 2026, zklock contributors
#
# lock_client.pl CONFIGURATION
#
# A client of the fault run: takes a lock on one of several paths again and again, works
# under it, and writes into its history what it believed. Its configuration is that of
# Nemesis::SqlClient with quick and slow (paths), and keeps.
#
# It holds a lock for a moment on quick paths, for seconds on slow ones. With "keeps", a
# path, it takes only that one, for longer than a session may be silent, and relies on the
# lease alone.

use v5.36;

use FindBin;
use lib "$FindBin::Bin/lib";
use Nemesis::History qw(now);
use Nemesis::Register;
use Nemesis::SqlClient qw(nap between one_of);

my $client   = Nemesis::SqlClient->new;
my $register = Nemesis::Register->new($client->config('register'));
my $keeps    = $client->config('keeps');
my @quick    = @{ $client->config('quick') };
my @slow     = @{ $client->config('slow') };

# What follows the grant. Each step may fail; until tells how far it came.
sub work($attempt, $pause)
{
	my $session_level = $attempt->{scope} eq 'session';

	$attempt->{token} = $client->run('SELECT zk_fencing_token(?)', $attempt->{path});
	return 'aborted' unless defined $attempt->{token};
	$client->begin || return 'aborted' if $session_level;
	$client->run('INSERT INTO attempts VALUES (?)', $attempt->{id}) || return 'aborted';
	$attempt->{until} = now;
	my $seen = $register->read($attempt->{path}, $attempt->{token});
	nap($pause);
	$register->write($attempt->{path}, $attempt->{token}, $attempt->{id}, $seen);
	$attempt->{until} = now;
	$client->commit && return 'committed';
	return $client->error->{fatal} ? 'unknown' : 'aborted';
}

# Returns whether it has committed.
sub attempt($path, $pause, $timeout)
{
	my %attempt = ($client->begin_attempt, path => $path, scope => one_of(qw(session transaction)));

	$attempt{guard} = $keeps ? 'lease' : one_of(qw(lease lease quorum));
	$client->run("SET zklock.commit_guard = $attempt{guard}");
	$client->run('SET zklock.on_lock_loss = ' . ($keeps ? 'abort' : one_of(qw(abort cancel terminate))));
	$client->begin if $attempt{scope} eq 'transaction';
	$attempt{asked} = now;
	my $got = $client->run(
		$attempt{scope} eq 'session' ? 'SELECT zk_lock(?, ?)' : 'SELECT zk_xact_lock(?, ?)',
		$path, $timeout);
	if ($got)
	{
		$attempt{granted} = $attempt{until} = now;
		$attempt{outcome} = work(\%attempt, $pause);
	}
	else
	{
		$attempt{outcome} = defined $got ? 'timeout' : 'failed';
	}
	$attempt{outcome} = 'refused' if ($client->error->{sqlstate} || '') eq '40001';
	$client->end_attempt(\%attempt, 'SELECT zk_unlock_all()');
	return $attempt{outcome} eq 'committed';
}

until ($client->last_lap)
{
	if ($keeps)
	{
		attempt($keeps, between(4.5, 7), '20s');
	}
	elsif (rand() < 0.04)
	{
		attempt(one_of(@slow), between(0.3, 1.5), one_of('1s', '10s', '20s'));
	}
	else
	{
		my $path = one_of(@quick);
		attempt($path, between(0.005, 0.06), one_of('0', '1s', '3s', '10s', '20s', '20s')) foreach 1 .. one_of(1, 1, 3);
	}
	nap(between(0.05, 0.6)) unless $client->last_lap;
}
foreach my $path (@quick, @slow)
{
	nap(0.1) until attempt($path, 0.01, undef);
}
$client->disconnect;
