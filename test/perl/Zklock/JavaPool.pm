# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::JavaPool - a Java service with a connection pool, HikariCP

=head1 SYNOPSIS

  my $pool = Zklock::JavaPool->new;
  $pool->open($jdbc_url);                          # a pool of one connection
  $pool->borrow;
  my $result = $pool->query('SELECT ...');         # 't', or a failure's SQLSTATE
  $pool->giveback;

The Java program is test/interop/PoolPeer.java.

=cut

package Zklock::JavaPool;

use strict;
use warnings;

use parent 'Zklock::LinePeer';

use Carp;
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;

our @CARP_NOT = qw(Zklock::LinePeer);

my @jars = map { "/usr/share/java/$_.jar" } qw(HikariCP postgresql slf4j-api slf4j-simple);

sub new
{
	my ($class) = @_;
	foreach my $jar (@jars)
	{
		croak "$jar is missing: install the Debian packages libhikaricp-java, libpostgresql-jdbc-java and libslf4j-java"
		  unless -e $jar;
	}
	my $directory = PostgreSQL::Test::Utils::tempdir('classes');
	my $classpath = join(':', @jars);
	my @quick = map { "-J-XX:$_" } qw(+UseSerialGC TieredStopAtLevel=1 -UsePerfData);
	system('javac', @quick, qw(-nowarn -proc:none), '-cp', $classpath, '-d', $directory,
		dirname(__FILE__) . '/../../interop/PoolPeer.java') == 0
	  or croak 'cannot compile PoolPeer.java';
	my $test = $PostgreSQL::Test::Utils::test_logfile =~ s/.*regress_log_//r;
	return $class->SUPER::new(
		name => 'java_pool',
		log  => "$PostgreSQL::Test::Utils::log_path/${test}_java_pool.log",
		argv => [
			'java', qw(-Xms32m -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData),
			'-Dorg.slf4j.simpleLogger.defaultLogLevel=info',
			'-cp', "$directory:$classpath", 'PoolPeer' ]);
}

sub encode_request { my ($self, @words) = @_; return join(' ', @words); }

foreach my $command (qw(open borrow query giveback))
{
	no strict 'refs';
	*$command = sub { my ($self, @arg) = @_; return $self->call($command, @arg); };
}

1;
