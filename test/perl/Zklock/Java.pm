# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Java - a Java program of test/interop that answers one line per request

=head1 SYNOPSIS

  my $java = Zklock::Java->program('PoolPeer', jars => [qw(HikariCP postgresql)]);
  $java->call('borrow');
  my $java = Zklock::Java->program('FencePeer', jars => [...], sources => { FencedMutex => $source });

The description of each program is in its source. C<program> compiles it for this test, with more
sources by name of the class. For classes that are compiled otherwise:

  Zklock::Java->new(name => ..., main => $class, classpath => ..., archive => ..., dir => ...)

The archive is one of Zklock::Jars, the directory that of the process.

=cut

package Zklock::Java;

use v5.36;

use parent 'Zklock::LinePeer';

use PostgreSQL::Test::Utils;
use Zklock::Jars;

sub new($class, %arg)
{
	return $class->SUPER::new(
		name => $arg{name},
		dir  => $arg{dir},
		argv => [ java_command($arg{archive}, '-Xmx128m', '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn', '-cp', $arg{classpath}, $arg{main}) ]);
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
