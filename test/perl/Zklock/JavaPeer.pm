# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::JavaPeer - contenders that use Curator, ZooKeeper's recipe, or do as Hive

=head1 SYNOPSIS

  my $java = Zklock::JavaPeer->new;
  my $session = $java->connect($zk->connect_string, 10000);   # '0x100...'

  my $id = $java->acquire_start('j1', '/lock', 5000);   # ms; without: for ever
  my $got = $java->result($id);                         # 1, or 0 after the timeout
  my $got = $java->acquire('j1', '/lock', 5000);        # both in one
  my ($path, $czxid, $owner) = @{ $java->node('j1') };  # of a lock held
  $java->prove('j1');                                   # by a quorum, that the node exists
  my @paths = @{ $java->participants('/lock') };
  $java->interrupt('j1');                               # a waiting acquire fails
  $java->release('j1');
  $java->acquire('j2', '/lock', -1, 'recipe');          # another kind of lock

  my $id = $java->counter_start($file, $rounds, '/lock', $sleep_ms);
  $java->result($id);              # done: $rounds times lock, read, sleep, write, unlock

  Zklock::JavaPeer->set_counter($zk->server(1), '/lock', 2147483640);
                                   # of a server that is stopped: the next sequence
  my $got = $java->permit('p1', '/semaphore', 3, 5000);   # of a semaphore with 3 permits
  my $id = $java->permit_start('p1', '/semaphore', 3, 5000);
  $java->permit_release('p1');
  my $id = $java->permit_rounds_start('p1', '/semaphore', 3, $rounds, $sleep_ms);
  my $times = $java->result($id);  # [ begin, end ] of each round, microseconds

  $java->stand('c1', '/election', 'latch');   # LeaderLatch; or 'selector', 'support'
  my $bool = $java->leads('c1');   # does it believe so?
  my $name = $java->leader('c1');  # who leads in its opinion
  $java->leave('c1');

  $java->queue('offer', 'q1', 'curator', '/queue', 'data');   # or 'zookeeper'
  my $data = $java->queue('remove', 'q1', 'curator', '/queue');   # or 'element'; 'none'
  my $id = $java->queue_start('take', 'q1', 'zookeeper', '/queue');

  $java->container('/parent');
  $java->close_session;            # its locks go; stop does the same
  $java->kill9;                    # its locks stay until the session expires
  $java->pause; $java->resume;

Every name is a lock with a thread of its own. The kinds are

  mutex multi semaphore      Curator's InterProcessMutex (default), InterProcessMultiLock
                             of two mutexes, InterProcessSemaphoreMutex
  write read                 of Curator's InterProcessReadWriteLock
  recipe                     ZooKeeper's own WriteLock
  hive_exclusive hive_shared hive_lock_table
                             what Hive does, by its published source

C<refusals($name)> tells how often a lock of Hive's, which polls, was found taken.

The Java program is test/interop/LockPeer.java with PeerLocks.java. It is compiled once per test run, into
the directory ZKLOCK_JAVA_CLASSES, or else for each test.

=cut

package Zklock::JavaPeer;

use v5.36;

use parent 'Zklock::Java';

use Carp;
use Fcntl ':flock';
use PostgreSQL::Test::Utils;

our @CARP_NOT = qw(Zklock::LinePeer);

our @jars = qw(curator-recipes curator-framework curator-client zookeeper zookeeper-jute
  zookeeper-recipes-lock zookeeper-recipes-election zookeeper-recipes-queue guava
  failureaccess jackson-databind jackson-core jackson-annotations slf4j-api slf4j-simple);

my $number = 0;

sub classpath { return Zklock::Java::classpath(@jars); }

sub _classes
{
	my $directory = $ENV{ZKLOCK_JAVA_CLASSES} ||= PostgreSQL::Test::Utils::tempdir('classes');
	mkdir $directory;
	open(my $lock, '>>', "$directory/.lock") or croak "$directory/.lock: $!";
	flock($lock, LOCK_EX) or croak "$directory/.lock: $!";
	Zklock::Java::compile($directory, classpath(), qw(PeerLocks LockPeer SetCounter)) unless -e "$directory/SetCounter.class";
	return $directory;
}

# Sets the counter by which a server that does not run numbers the children of a node.
sub set_counter($class, $server, $path, $number)
{
	system('java', '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn', '-cp', _classes() . ':' . classpath(),
		'SetCounter', $server->dir . '/data', $path, $number) == 0
	  or croak "cannot set the counter of $path";
	return;
}

sub new($class, %arg)
{
	return $class->SUPER::new(
		name => $arg{name} || 'java_' . ++$number, main => 'LockPeer', classpath => _classes() . ':' . classpath());
}

foreach my $command (qw(release node prove participants refusals interrupt container))
{
	no strict 'refs';
	*$command = sub ($self, @arg) { return $self->call($command, @arg); };
}

sub connect($self, $hosts, $timeout = undef)
{
	return $self->call('connect', $hosts, $timeout || 10000);
}

sub acquire_start($self, $name, $path, $timeout = undef, $kind = undef)
{
	return $self->send('acquire', $name, $path, defined $timeout ? $timeout : -1, $kind || 'mutex');
}

sub acquire { my $self = shift; return $self->result($self->acquire_start(@_)); }

sub counter_start($self, $file, $rounds, $path, $sleep, $kind = undef)
{
	return $self->send('counter', $file, $rounds, $path, defined $sleep ? $sleep : 1, $kind || 'mutex');
}

sub permit_start($self, $name, $path, $permits, $timeout = undef)
{
	return $self->send('permit', 'acquire', $name, $path, $permits, defined $timeout ? $timeout : -1);
}

sub permit { my $self = shift; return $self->result($self->permit_start(@_)); }
sub permit_release($self, $name) { return $self->call('permit', 'release', $name); }
sub permit_rounds_start { my $self = shift; return $self->send('permit', 'rounds', @_); }

sub stand($self, @arg) { return $self->call('election', 'stand', @arg); }
sub leads($self, $name) { return $self->call('election', 'leads', $name); }
sub leader($self, $name) { return $self->call('election', 'leader', $name); }
sub leave($self, $name) { return $self->call('election', 'leave', $name); }

sub queue_start($self, @arg) { return $self->send('queue', @arg); }
sub queue { my $self = shift; return $self->result($self->queue_start(@_)); }

sub close_session($self) { return $self->call('close'); }

1;
