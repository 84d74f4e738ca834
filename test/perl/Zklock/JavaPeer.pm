# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::JavaPeer - contenders that use Curator, ZooKeeper's recipe, or do as Hive

=head1 SYNOPSIS

  my $java = Zklock::JavaPeer->new;
  my $session = $java->connect($zk->connect_string);           # '0x100...'
  $java->connect($zk->connect_string, scaled(4000));           # ms; default: 30 s, scaled

  my $got = $java->acquire('j1', '/lock', 5000);        # ms, scaled; without: for ever
  my $id = $java->acquire_start('j2', '/lock', -1, 'recipe');   # another kind of lock; does not wait
  my $got = $java->result($id);                         # 1, or 0 after the timeout
  my ($path, $czxid, $owner) = @{ $java->node('j1') };
  $java->release('j1');

  my $got = $java->permit('p1', '/semaphore', 3, 5000); # of a semaphore with 3 permits
  $java->stand('c1', '/election', 'latch');             # or 'selector', 'support'
  $java->queue('offer', 'q1', 'curator', '/queue', 'data');   # or 'zookeeper'

  $java->close_session;            # its locks go; stop does the same
  $java->kill9;                    # its locks stay until the session expires

  Zklock::JavaPeer->set_counter($zk->server(1), '/lock', 2147483640);
                                   # of a server that is stopped: the next sequence

The Java program is test/interop/LockPeer.java, which describes its commands, with PeerLocks.java, where
the kinds of locks are, Semaphores.java, Elections.java and Queues.java. All commands are methods; those
with C<_start> return the number of a request instead of its result. It is in the directory ZKLOCK_JAVA, as
Zklock::Jars has it, or compiled for the test.

=cut

package Zklock::JavaPeer;

use v5.36;

use parent 'Zklock::Java';

use Carp;
use PostgreSQL::Test::Utils;
use Zklock::Jars;
use Zklock::Util qw(scaled);

my $number = 0;
my $classes;

# The class path, and the directory in which it is valid. The jar's name is relative: elsewhere the archive would not be
# taken for its own.
sub _classes
{
	my $jars = classpath(@peer_jars);
	my $directory = $ENV{ZKLOCK_JAVA} // '';
	return ("peers.jar:$jars", $directory) if -s "$directory/peers.jar";
	$classes ||= compile(PostgreSQL::Test::Utils::tempdir('classes'), $jars, qw(LockPeer PeerLocks SetCounter));
	return ("$classes:$jars", undef);
}

# Sets the counter by which a server that does not run numbers the children of a node.
sub set_counter($class, $server, $path, $number)
{
	my ($classpath, $directory) = _classes();
	system('env', $directory ? "--chdir=$directory" : (),
		java_command('', '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn', '-cp', $classpath,
			'SetCounter', $server->dir . '/data', $path, $number)) == 0
	  or croak "cannot set the counter of $path";
	return;
}

sub new($class, %arg)
{
	my ($classpath, $directory) = _classes();
	return $class->SUPER::new(
		name => $arg{name} || 'java_' . ++$number, main => 'LockPeer', classpath => $classpath, archive => 'peers', dir => $directory);
}

foreach my $command (qw(release node prove participants refusals interrupt container revoke ttl))
{
	no strict 'refs';
	*$command = sub ($self, @arg) { return $self->call($command, @arg); };
}

foreach my $command (qw(stand leads leader leave))
{
	no strict 'refs';
	*$command = sub ($self, @arg) { return $self->call('election', $command, @arg); };
}

foreach my $command (qw(acquire permit queue))
{
	my $start = "${command}_start";
	no strict 'refs';
	*$command = sub ($self, @arg) { return $self->result($self->$start(@arg)); };
}

sub connect($self, $hosts, $timeout = scaled(30000)) { return $self->call('connect', $hosts, $timeout); }

# A negative one is for ever.
sub scaled_wait($timeout) { return $timeout > 0 ? scaled($timeout) : $timeout; }

sub acquire_start($self, $name, $path, $timeout = -1, $kind = 'mutex')
{
	return $self->send('acquire', $name, $path, scaled_wait($timeout), $kind);
}

sub counter_start($self, $file, $rounds, $path, $sleep, $kind = 'mutex')
{
	return $self->send('counter', $file, $rounds, $path, $sleep, $kind);
}

sub permit_start($self, $name, $path, $permits, $timeout = -1)
{
	return $self->send('permit', 'acquire', $name, $path, $permits, scaled_wait($timeout));
}

sub permit_release($self, $name) { return $self->call('permit', 'release', $name); }
sub permit_rounds_start($self, @arg) { return $self->send('permit', 'rounds', @arg); }
sub queue_start($self, @arg) { return $self->send('queue', @arg); }
sub close_session($self) { return $self->call('close'); }

1;
