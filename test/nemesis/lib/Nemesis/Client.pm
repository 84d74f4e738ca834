# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Client - what all clients of the fault run have in common

=head1 SYNOPSIS

  my $client  = Nemesis::SqlClient->new($config);    # or Nemesis::CuratorClient
  my %attempt = $client->begin_attempt;              # connects; id, client, kind, clock
  ...
  $client->end_attempt(\%attempt);                   # told; writes it into the history

The configuration is that of C<clients> in Nemesis::Target, and history (a file), register (a dsn)
and seed.

=cut

package Nemesis::Client;

use v5.36;

use Exporter 'import';
use Nemesis::History qw(now clock_difference);
use Nemesis::Register;

our @EXPORT_OK = qw(between one_of);

sub between($low, $high) { return $low + rand($high - $low); }
sub one_of { return $_[ rand @_ ]; }

sub new($class, $config)
{
	my $self = bless { config => $config, attempts => 0, last_lap => 0 }, $class;
	$SIG{USR1} = sub { $self->{last_lap} = 1; };
	srand($config->{seed});
	return $self;
}

sub config($self, $name) { return $self->{config}{$name}; }
sub register($self) { return $self->{register} ||= Nemesis::Register->new($self->config('register')); }

# Each thing is to be tried once more, until it succeeds; then the client ends.
sub last_lap($self) { return $self->{last_lap}; }

sub begin_attempt($self)
{
	my $name = $self->config('name');
	return (id => "$name." . ++$self->{attempts}, client => $name, kind => $self->kind, clock => clock_difference);
}

sub end_attempt($self, $attempt)
{
	$attempt->{told} = now;
	Nemesis::History->add($self->config('history'), $attempt);
	return;
}

1;
