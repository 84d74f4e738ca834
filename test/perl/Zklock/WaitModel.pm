# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::WaitModel - who must wait for whom: what a test compares sessions with

=head1 SYNOPSIS

  use Zklock::WaitModel;

  my $model = Zklock::WaitModel->new(bystanders => ['kazoo']);
  $model->ask('a1', '/d/a', 'exclusive');
  $model->ask('b1', '/d/a', 'shared');
  $model->waits('b1');              # true
  $model->blockers('b1');           # ('a1')
  $model->deadlocked;               # names of those that wait for themselves; () now
  $model->leave('a1');              # gives back all it has, and asks for nothing more

=head1 DESCRIPTION

All is served in the order in which it was asked for, as zklock does, and PostgreSQL if all locks are
exclusive and nobody asks twice: who asks waits for all others that asked before and conflict, whether
these hold or wait. An actor may ask for the exclusive lock while it has the shared one.

Bystanders wait and block like all others, but wait for nothing else while they hold something: they
are never named by deadlocked.

=head1 METHODS

  may_ask($name, $what, $mode)  it has not asked for that, or more, before
  waits_for($name, $other)      the first waits for the other
  waits_behind($name, $other)   it waits for a bystander who does
  describe                      all queues, as text, for messages

=cut

package Zklock::WaitModel;

use strict;
use warnings;

sub new
{
	my ($class, %arg) = @_;
	return bless { queues => {}, bystander => { map { $_ => 1 } @{ $arg{bystanders} || [] } } }, $class;
}

sub _entries { my ($self, $name) = @_; return grep { $_->{name} eq $name } map { @$_ } values %{ $self->{queues} }; }

# Who asked before for the same, and conflicts
sub _in_the_way
{
	my ($self, $entry) = @_;
	my %names;
	foreach my $older (@{ $self->{queues}{ $entry->{what} } })
	{
		last if $older == $entry;
		$names{ $older->{name} } = 1
		  if $older->{name} ne $entry->{name} && grep { $_ eq 'exclusive' } $older->{mode}, $entry->{mode};
	}
	return sort keys %names;
}

sub may_ask
{
	my ($self, $name, $what, $mode) = @_;
	return !grep { $_->{name} eq $name && ($_->{mode} eq 'exclusive' || $_->{mode} eq $mode) } @{ $self->{queues}{$what} || [] };
}

sub ask
{
	my ($self, $name, $what, $mode) = @_;
	push @{ $self->{queues}{$what} }, { name => $name, what => $what, mode => $mode };
	return;
}

sub leave
{
	my ($self, $name) = @_;
	@$_ = grep { $_->{name} ne $name } @$_ foreach values %{ $self->{queues} };
	return;
}

sub blockers
{
	my ($self, $name) = @_;
	my %names = map { $_ => 1 } map { $self->_in_the_way($_) } $self->_entries($name);
	return sort keys %names;
}

sub waits { my ($self, $name) = @_; return !!(() = $self->blockers($name)); }

sub waits_for { my ($self, $name, $other) = @_; return !!grep { $_ eq $other } $self->blockers($name); }

sub waits_behind
{
	my ($self, $name, $other) = @_;
	return !!grep { $self->{bystander}{$_} && $self->waits_for($_, $other) } $self->blockers($name);
}

# Does one wait for itself, in the end?
sub _waits_for_itself
{
	my ($self, $name) = @_;
	my @next = $self->blockers($name);
	my %seen;
	while (defined(my $at = shift @next))
	{
		return 1 if $at eq $name;
		push @next, $self->blockers($at) unless $seen{$at}++;
	}
	return 0;
}

sub deadlocked
{
	my ($self) = @_;
	my %names = map { $_->{name} => 1 } map { @$_ } values %{ $self->{queues} };
	return grep { !$self->{bystander}{$_} && $self->_waits_for_itself($_) } sort keys %names;
}

sub describe
{
	my ($self) = @_;
	my $queues = $self->{queues};
	return join '', map {
		my $what = $_;
		"$what: " . join(', ', map { "$_->{name} $_->{mode}" . ($self->_in_the_way($_) ? ' waits' : '') } @{ $queues->{$what} }) . "\n"
	} grep { @{ $queues->{$_} } } sort keys %$queues;
}

1;
