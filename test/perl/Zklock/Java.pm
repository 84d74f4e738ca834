# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Java - a Java program of test/interop that answers one line per request

=head1 SYNOPSIS

  my $java = Zklock::Java->program('PoolPeer', jars => [qw(HikariCP postgresql)]);
  $java->call('borrow');
  my $java = Zklock::Java->program('FencePeer', jars => [...], sources => { FencedMutex => $source });

The description of each program is in its source. C<program> compiles it for this test, with more
sources by name of the class. For classes that say how they are compiled themselves:

  classpath(@names)                          of Debian's jars with these names
  compile($directory, $classpath, @sources)  returns the directory
  Zklock::Java->new(name => ..., main => $class, classpath => ...)

=cut

package Zklock::Java;

use v5.36;

use parent 'Zklock::LinePeer';

use Carp;
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;

my $interop = dirname(__FILE__) . '/../../interop';

sub classpath
{
	my @jars = map { "/usr/share/java/$_.jar" } @_;
	foreach my $jar (@jars)
	{
		# Not every release of guava has failureaccess apart; netty is for TLS alone.
		croak "$jar is missing: tools/install-deps installs it" unless -e $jar || $jar =~ /failureaccess|netty/;
	}
	return join(':', grep { -e } @jars);
}

sub compile($directory, $classpath, @sources)
{
	my @quick = map { "-J-XX:$_" } qw(+UseSerialGC TieredStopAtLevel=1 -UsePerfData);
	system('javac', @quick, qw(-nowarn -proc:none), '-cp', $classpath, '-sourcepath', $interop, '-d', $directory,
		map { m{/} ? $_ : "$interop/$_.java" } @sources) == 0
	  or croak "cannot compile @sources: is a JDK installed (Debian package default-jdk-headless)?";
	return $directory;
}

sub new($class, %arg)
{
	return $class->SUPER::new(
		name => $arg{name},
		argv => [
			'java', qw(-Xms32m -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData),
			'-Dorg.slf4j.simpleLogger.defaultLogLevel=warn', '-cp', $arg{classpath}, $arg{main} ]);
}

sub program($class, $main, %arg)
{
	my $directory = PostgreSQL::Test::Utils::tempdir('classes');
	my $classpath = classpath(@{ $arg{jars} });
	my %sources   = %{ $arg{sources} || {} };
	append_to_file("$directory/$_.java", $sources{$_}) foreach sort keys %sources;
	compile($directory, $classpath, $main, map { "$directory/$_.java" } sort keys %sources);
	return $class->new(name => $main, main => $main, classpath => "$directory:$classpath");
}

sub encode_request($self, @words) { return join(' ', @words); }

1;
