#!/usr/bin/perl
# Copyright (c) 2026, zklock contributors
#
# sql_client.pl CONFIGURATION
#
# A client of the fault run: takes a lock on one of several paths again and again, works
# under it, and writes into its history what it believed, see Nemesis::History. The
# configuration is JSON: name, server, dsn, register (its dsn), history (a file), seed,
# quick and slow (paths).
#
# It holds a lock for a moment on quick paths, for seconds on slow ones. With "keeps", a
# path, it takes only that one, for longer than a session may be silent, and relies on the
# lease alone.
#
# On SIGUSR1 it makes a last attempt, on each path, and ends when each has succeeded.

use strict;
use warnings;

use DBI;
use FindBin;
use JSON::PP;
use lib "$FindBin::Bin/lib";
use Nemesis::History qw(now clock_difference);
use Nemesis::Register;

my $config   = JSON::PP->new->utf8->decode($ARGV[0]);
my $history  = Nemesis::History->new($config->{history});
my $register = Nemesis::Register->new($config->{register});
my $attempts = 0;
my $last_lap = 0;
my $dbh;
my $in_transaction;

$SIG{USR1} = sub { $last_lap = 1; };
srand($config->{seed});

sub nap { my ($seconds) = @_; select(undef, undef, undef, $seconds); return; }
sub between { my ($low, $high) = @_; return $low + rand($high - $low); }
sub one_of { return $_[ rand @_ ]; }

sub connect_server
{
	until ($dbh)
	{
		$dbh = DBI->connect("dbi:Pg:$config->{dsn}", undef, '',
			{ AutoCommit => 1, RaiseError => 0, PrintError => 0, PrintWarn => 0, pg_server_prepare => 0 });
		nap(0.2) unless $dbh;
	}
	return;
}

# Why the last statement failed: { sqlstate, error, fatal }
my %error;

# One statement. Returns its first value, or true if it has none; undef on an error.
sub run
{
	my ($sql, @values) = @_;
	%error = ();
	my $result;
	if ($sql =~ /^SELECT/)
	{
		my $row = $dbh->selectrow_arrayref($sql, undef, @values);
		$result = $row->[0] if $row;
	}
	else
	{
		$result = $dbh->do($sql, undef, @values);
	}
	return $result unless $dbh->err;
	%error = (sqlstate => $dbh->state, error => $dbh->errstr);
	# Without the server's last words the library makes up a state.
	$error{sqlstate} = '08006' unless $error{error} =~ /^(?:ERROR|FATAL|PANIC):/;
	$error{fatal} = $error{error} !~ /^ERROR:/;
	return undef;
}

sub begin { return $in_transaction = run('BEGIN'); }

# What follows the grant. Each step may fail; until tells how far it came.
sub work
{
	my ($attempt, $pause) = @_;
	my $session_level = $attempt->{scope} eq 'session';

	$attempt->{token} = run('SELECT zk_fencing_token(?)', $attempt->{path});
	return 'aborted' unless defined $attempt->{token};
	begin() || return 'aborted' if $session_level;
	run('INSERT INTO attempts VALUES (?)', $attempt->{id}) || return 'aborted';
	$attempt->{until} = now;
	my $seen = $register->read($attempt->{path}, $attempt->{token});
	nap($pause);
	$register->write($attempt->{path}, $attempt->{token}, $attempt->{id}, $seen);
	$attempt->{until} = now;
	$in_transaction = 0;
	run('COMMIT') && return 'committed';
	return $error{fatal} ? 'unknown' : 'aborted';
}

# Returns whether it has committed.
sub attempt
{
	my ($path, $pause, $timeout) = @_;
	my %attempt = (
		id => "$config->{name}." . ++$attempts, client => $config->{name}, kind => 'sql',
		server => $config->{server}, path => $path, clock => clock_difference,
		scope => one_of(qw(session transaction)));

	connect_server();
	$attempt{guard} = $config->{keeps} ? 'lease' : one_of(qw(lease lease quorum));
	run("SET zklock.commit_guard = $attempt{guard}");
	run('SET zklock.on_lock_loss = ' . ($config->{keeps} ? 'abort' : one_of(qw(abort cancel terminate))));
	$in_transaction = 0;
	begin() if $attempt{scope} eq 'transaction';
	$attempt{asked} = now;
	my $got = run(
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
	$attempt{told} = now;
	if (%error)
	{
		@attempt{qw(sqlstate error)} = @error{qw(sqlstate error)};
		$attempt{outcome} = 'refused' if $error{sqlstate} eq '40001';
	}

	# Whatever is left of it must go. If this fails, so must the connection.
	my $fatal = $error{fatal};
	$fatal = 1 unless $fatal || (!$in_transaction || run('ROLLBACK')) && defined run('SELECT zk_unlock_all()');
	if ($fatal)
	{
		$dbh->disconnect;
		undef $dbh;
	}
	$history->add(\%attempt);
	return $attempt{outcome} eq 'committed';
}

until ($last_lap)
{
	if ($config->{keeps})
	{
		attempt($config->{keeps}, between(4.5, 7), '20s');
	}
	elsif (rand() < 0.04)
	{
		attempt(one_of(@{ $config->{slow} }), between(0.3, 1.5), one_of('1s', '10s', '20s'));
	}
	else
	{
		attempt(one_of(@{ $config->{quick} }), between(0.005, 0.06), one_of('0', '1s', '3s', '10s', '20s', '20s'));
	}
	nap(between(0.05, 0.6)) unless $last_lap;
}
foreach my $path (@{ $config->{quick} }, @{ $config->{slow} })
{
	nap(0.1) until attempt($path, 0.01, undef);
}
$dbh->disconnect if $dbh;
