# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::JavaWriter - a Java service that locks with Curator and writes by JDBC

=head1 SYNOPSIS

  my $java = Zklock::JavaWriter->new($source);      # of class FencedMutex
  $java->connect($zk->connect_string, 2000, $jdbc_url);
  my $token = $java->acquire('/lock');
  my $result = $java->write('UPDATE ...');          # 'held 00000': see FencePeer.java
  my $id = $java->send('write', 'UPDATE ...');      # does not wait
  my $result = $java->result($id);
  $java->release;
  $java->pause; $java->resume;

The Java program is test/interop/FencePeer.java.

=cut

package Zklock::JavaWriter;

use strict;
use warnings;

use parent 'Zklock::LinePeer';

use Carp;
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Zklock::JavaPeer;

our @CARP_NOT = qw(Zklock::LinePeer);

my $jdbc = '/usr/share/java/postgresql.jar';

sub new
{
	my ($class, $source) = @_;
	croak "$jdbc is missing: install the Debian package libpostgresql-jdbc-java" unless -e $jdbc;
	my $directory = PostgreSQL::Test::Utils::tempdir('classes');
	my $classpath = Zklock::JavaPeer::classpath() . ":$jdbc";
	append_to_file("$directory/FencedMutex.java", $source);
	my @quick = map { "-J-XX:$_" } qw(+UseSerialGC TieredStopAtLevel=1 -UsePerfData);
	system('javac', @quick, qw(-nowarn -proc:none), '-cp', $classpath, '-d', $directory,
		"$directory/FencedMutex.java", dirname(__FILE__) . '/../../interop/FencePeer.java') == 0
	  or croak 'cannot compile FencePeer.java';
	my $test = $PostgreSQL::Test::Utils::test_logfile =~ s/.*regress_log_//r;
	return $class->SUPER::new(
		name => 'java_writer',
		log  => "$PostgreSQL::Test::Utils::log_path/${test}_java_writer.log",
		argv => [
			'java', qw(-Xms32m -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData),
			'-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
			'-cp', "$directory:$classpath", 'FencePeer' ]);
}

sub encode_request { my ($self, @words) = @_; return join(' ', @words); }

foreach my $command (qw(connect acquire write release))
{
	no strict 'refs';
	*$command = sub { my ($self, @arg) = @_; return $self->call($command, @arg); };
}

1;
