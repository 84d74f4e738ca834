# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Election - servers that stand at an election

=head1 SYNOPSIS

  my $election = Zklock::Election->new($zk, '/e/leader');
  $election->wait_state($server, 'elected');       # until zk_elections says so
  $election->wait_state($server, 'ready', '/e/other');
  $election->leads($server);                       # zk_is_leader, 't' or 'f'

=cut

package Zklock::Election;

use strict;
use warnings;

sub new
{
	my ($class, $zk, $path) = @_;
	return bless { zk => $zk, path => $path }, $class;
}

sub wait_state
{
	my ($self, $server, $state, $path) = @_;
	$path //= $self->{path};
	$server->wait_value("SELECT coalesce((SELECT state FROM zk_elections WHERE path = '$path'), 'none')", $state);
	return;
}

sub leads
{
	my ($self, $server) = @_;
	return $server->value("SELECT zk_is_leader('$self->{path}')");
}

1;
