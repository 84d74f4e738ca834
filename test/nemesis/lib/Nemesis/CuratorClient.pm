# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::CuratorClient - a Java service with Curator's InterProcessMutex, as a client of the fault run

=head1 SYNOPSIS

  $client->java->acquire('lock', $path, 10_000);    # see Zklock::JavaPeer
  $client->connect;                                 # anew

Its configuration is that of Nemesis::Client with hosts, session_timeout (ms) and pid_file, which gets
the pid of the Java process.

=cut

package Nemesis::CuratorClient;

use v5.36;

use parent 'Nemesis::Client';

use PostgreSQL::Test::Utils;
use Zklock::JavaPeer;

sub new($class, $config)
{
	my $self = $class->SUPER::new($config);
	$self->{java} = Zklock::JavaPeer->new(name => $config->{name});
	append_to_file($config->{pid_file}, $self->java->pid . "\n");
	$self->connect;
	return $self;
}

sub kind { return 'curator'; }
sub java($self) { return $self->{java}; }
sub connect($self) { return $self->java->connect($self->config('hosts'), $self->config('session_timeout')); }
sub disconnect($self) { return $self->java->stop; }

1;
