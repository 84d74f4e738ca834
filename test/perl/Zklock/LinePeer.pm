# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::LinePeer - a helper process that answers one line per request

=head1 SYNOPSIS

  my $result = $peer->call('create', '/a', { ephemeral => 1 });  # croaks on error
  my $id = $peer->send('acquire', 'me', '/lock', -1);            # does not wait
  ... $peer->ready($id) ...
  my $answer = $peer->result($id [, $seconds]);                  # croaks on error

Requests are lines C<[id, "command", argument, ...]> in JSON, answers lines
C<{"id":..., "ok":true, "result":...}> or C<{"id":..., "ok":false, "error":"..."}>,
in any order.

=cut

package Zklock::LinePeer;

use v5.36;

use parent 'Zklock::Process';

use Carp;
use IO::Select;
use JSON::PP;
use Time::HiRes qw(time);
use Zklock::Util qw(default_timeout scaled tail);

my $json = JSON::PP->new->utf8->canonical->allow_nonref;

sub new($class, %arg)
{
	my $self = $class->SUPER::new(%arg, pipes => 1);
	%$self = (%$self, buffer => '', last_id => 0, answers => {}, asked => {});
	return $self;
}

sub encode_request { shift; return $json->encode([@_]); }

sub send($self, @request)
{
	my $id = ++$self->{last_id};
	$self->{asked}{$id} = join(' ', map { defined $_ && !ref $_ ? $_ : $json->encode($_) } @request);
	my $line = $self->encode_request($id, @request) . "\n";
	syswrite($self->{in}, $line) // $self->_dead("cannot take '$self->{asked}{$id}'");
	return $id;
}

# Take in what there is, waiting for at most $timeout seconds.
sub _receive($self, $timeout)
{
	return unless IO::Select->new($self->{out})->can_read($timeout);
	my $n = sysread($self->{out}, $self->{buffer}, 65536, length $self->{buffer});
	$self->_dead('ended') unless $n;
	while ($self->{buffer} =~ s/^(.*)\n//)
	{
		my $answer = eval { $json->decode($1) } or croak "$self->{name}: bad answer: $1";
		$self->{answers}{ $answer->{id} } = $answer if defined $answer->{id};
	}
	return;
}

sub _dead($self, $what)
{
	$self->wait_end(1);
	croak "$self->{name} $what (" . $self->status_text . "):\n" . tail($self->{log}, 20);
}

# Has this request been answered?
sub ready($self, $id)
{
	$self->_receive(0) unless $self->{answers}{$id};
	return exists $self->{answers}{$id};
}

# The answer, error or not: { ok, result, error }
sub answer($self, $id, $timeout = undef)
{
	croak "no such request" unless exists $self->{asked}{$id};
	$timeout = defined $timeout ? scaled($timeout) : default_timeout();
	my $end = time + $timeout;
	until (exists $self->{answers}{$id})
	{
		my $left = $end - time;
		croak "timed out after $timeout s waiting for $self->{name} to answer '$self->{asked}{$id}'"
		  if $left <= 0;
		$self->_receive($left);
	}
	return $self->{answers}{$id};
}

sub result($self, $id, $timeout = undef)
{
	my $answer = $self->answer($id, $timeout);
	croak "$self->{name}: '$self->{asked}{$id}' failed: $answer->{error}" unless $answer->{ok};
	delete @{ $self->{$_} }{$id} foreach qw(answers asked);
	return $answer->{result};
}

sub call($self, @request) { return $self->result($self->send(@request)); }

1;
