#!/usr/bin/perl
# Copyright (c) 2026, zklock contributors
#
# lock_curator_client.pl CONFIGURATION
#
# As lock_client.pl, but a Java service with Curator's InterProcessMutex. It has no lease and
# no commit guard. Before it lets go of a lock it has ZooKeeper commit that its node is still
# there; if it is not, its work does not count: the attempt is "lost".
#
# The configuration is JSON: name, hosts, session_timeout (ms), register, history, seed,
# quick, slow, pid_file (gets the pid of the Java process).

use v5.36;

use FindBin;
use JSON::PP;
use lib "$FindBin::Bin/lib";
use Nemesis::History qw(now clock_difference);
use Nemesis::Register;
use Nemesis::SqlClient qw(nap between);
use PostgreSQL::Test::Utils;
use Zklock::JavaPeer;

my $config   = JSON::PP->new->utf8->decode($ARGV[0]);
my $history  = Nemesis::History->new($config->{history});
my $register = Nemesis::Register->new($config->{register});
my $attempts = 0;
my $last_lap = 0;

$SIG{USR1} = sub { $last_lap = 1; };
srand($config->{seed});

my $java = Zklock::JavaPeer->new(name => $config->{name});
append_to_file($config->{pid_file}, $java->pid . "\n");
$java->connect($config->{hosts}, $config->{session_timeout});

# Returns whether it counts.
sub attempt($path, $pause, $timeout)
{
	my %attempt = (
		id => "$config->{name}." . ++$attempts, client => $config->{name}, kind => 'curator',
		path => $path, clock => clock_difference, asked => now);

	my $got = eval { $java->acquire('lock', $path, $timeout) };
	if ($got)
	{
		$attempt{granted} = $attempt{until} = now;
		my $node = eval { $java->node('lock') };
		if ($node)
		{
			$attempt{token} = $node->[1] << 12;
			$attempt{until} = now;
			my $seen = $register->read($path, $attempt{token});
			nap($pause);
			$register->write($path, $attempt{token}, $attempt{id}, $seen);
			$attempt{until} = now;
			$attempt{outcome} = 'committed' if eval { $java->prove('lock') };
		}
		# Whoever has no answer must take the lock for lost.
		$attempt{outcome} ||= 'lost';
		$attempt{error} = $@ if $@;
		eval { $java->release('lock') };
	}
	else
	{
		$attempt{outcome} = defined $got ? 'timeout' : 'failed';
		$attempt{error} = $@ unless defined $got;
	}

	# Curator may leave a node behind when it fails: that goes with its session.
	$java->connect($config->{hosts}, $config->{session_timeout}) if $attempt{outcome} eq 'failed';
	$attempt{told} = now;
	$history->add(\%attempt);
	return $attempt{outcome} eq 'committed';
}

until ($last_lap)
{
	my $slow  = rand() < 0.1;
	my $paths = $config->{ $slow ? 'slow' : 'quick' };
	attempt($paths->[ rand @$paths ], $slow ? between(0.3, 2) : between(0.005, 0.06), 10000);
	nap(between(0.1, 1.0)) unless $last_lap;
}
foreach my $path (@{ $config->{quick} }, @{ $config->{slow} })
{
	nap(0.1) until attempt($path, 0.01, -1);
}
$java->stop;
