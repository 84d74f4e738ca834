# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Jars - how Java programs are compiled and started

=head1 SYNOPSIS

  use Zklock::Jars;

  my $path = classpath(@server_jars);             # or @peer_jars; of Debian's jars with these names
  compile($directory, $path, 'LockPeer');         # a class of test/interop, or a file; returns the directory
  system javac_command('-cp', $path, 'File.java'); # as that does
  exec java_command('server', '-cp', $path, 'Main', 'argument');

=head1 DESCRIPTION

A JVM spends most of its time in a test with loading and compiling classes. test/perl/java-archives leaves in
the directory ZKLOCK_JAVA for all tests of a run

  peers.jar      LockPeer and what belongs to it, compiled
  server.jsa     class data archives, of ZooKeeper's server and of LockPeer, which spare a JVM the
  peers.jsa      reading of classes that it had before

An archive is used by who names it, with the class path for which it was made. Without the directory everything
is compiled where it is needed. This module needs nothing of PostgreSQL.

=cut

package Zklock::Jars;

use v5.36;

use Carp;
use Exporter 'import';
use File::Basename qw(dirname);

our @EXPORT = qw(@server_jars @peer_jars classpath compile javac_command java_command);

my $interop = dirname(__FILE__) . '/../../interop';

# ZooKeeper's manifest names the other jars it needs. Debian leaves the choice of an
# slf4j backend to the installation: slf4j-simple writes to standard error, which is
# all that is wanted here. For TLS: more of Netty than the manifest names.
our @server_jars = qw(zookeeper zookeeper-jute slf4j-api slf4j-simple netty-codec netty-resolver);

our @peer_jars = qw(curator-recipes curator-framework curator-client zookeeper zookeeper-jute
  zookeeper-recipes-lock zookeeper-recipes-election zookeeper-recipes-queue guava
  failureaccess jackson-databind jackson-core jackson-annotations slf4j-api slf4j-simple);

# A quick start counts for more than speed later on.
my @quick = qw(-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData);

sub classpath(@names)
{
	my @jars = map { "/usr/share/java/$_.jar" } @names;
	foreach my $jar (@jars)
	{
		# Not every release of guava has failureaccess apart; netty is for TLS alone.
		croak "$jar is missing: tools/install-deps installs it" unless -e $jar || $jar =~ /failureaccess|netty/;
	}
	return join(':', grep { -e } @jars);
}

sub javac_command(@arg) { return ('javac', (map { "-J$_" } @quick), qw(-nowarn -proc:none), @arg); }

sub compile($directory, $classpath, @sources)
{
	system(javac_command('-cp', $classpath, '-sourcepath', $interop, '-d', $directory,
		map { m{/} ? $_ : "$interop/$_.java" } @sources)) == 0
	  or croak "cannot compile @sources: is a JDK installed (Debian package default-jdk-headless)?";
	return $directory;
}

# With an archive of this name, if there is one
sub java_command($archive, @arg)
{
	my $file = $archive && ($ENV{ZKLOCK_JAVA} // '') . "/$archive.jsa";
	return ('java', '-Xms32m', @quick, $file && -s $file ? "-XX:SharedArchiveFile=$file" : (), @arg);
}

1;
