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

use v5.36;

sub new($class, %arg)
{
	return bless { queues => {}, bystander => { map { $_ => 1 } @{ $arg{bystanders} || [] } } }, $class;
}

sub _entries($self, $name) { return grep { $_->{name} eq $name } map { @$_ } values %{ $self->{queues} }; }

# Who asked before for the same, and conflicts
sub _in_the_way($self, $entry)
{
	my %names;
	foreach my $older (@{ $self->{queues}{ $entry->{what} } })
	{
		last if $older == $entry;
		$names{ $older->{name} } = 1
		  if $older->{name} ne $entry->{name} && grep { $_ eq 'exclusive' } $older->{mode}, $entry->{mode};
	}
	return sort keys %names;
}

sub may_ask($self, $name, $what, $mode)
{
	return !grep { $_->{name} eq $name && ($_->{mode} eq 'exclusive' || $_->{mode} eq $mode) } @{ $self->{queues}{$what} || [] };
}

sub ask($self, $name, $what, $mode = undef)
{
	push @{ $self->{queues}{$what} }, { name => $name, what => $what, mode => $mode };
	return;
}

sub leave($self, $name)
{
	@$_ = grep { $_->{name} ne $name } @$_ foreach values %{ $self->{queues} };
	return;
}

sub blockers($self, $name)
{
	my %names = map { $_ => 1 } map { $self->_in_the_way($_) } $self->_entries($name);
	return sort keys %names;
}

sub waits($self, $name) { return !!(() = $self->blockers($name)); }

sub waits_for($self, $name, $other) { return !!grep { $_ eq $other } $self->blockers($name); }

sub waits_behind($self, $name, $other)
{
	return !!grep { $self->{bystander}{$_} && $self->waits_for($_, $other) } $self->blockers($name);
}

# Does one wait for itself, in the end?
sub _waits_for_itself($self, $name)
{
	my @next = $self->blockers($name);
	my %seen;
	while (defined(my $at = shift @next))
	{
		return 1 if $at eq $name;
		push @next, $self->blockers($at) unless $seen{$at}++;
	}
	return 0;
}

sub deadlocked($self)
{
	my %names = map { $_->{name} => 1 } map { @$_ } values %{ $self->{queues} };
	return grep { !$self->{bystander}{$_} && $self->_waits_for_itself($_) } sort keys %names;
}

sub describe($self)
{
	my $queues = $self->{queues};
	return join '', map {
		my $what = $_;
		"$what: " . join(', ', map { "$_->{name} $_->{mode}" . ($self->_in_the_way($_) ? ' waits' : '') } @{ $queues->{$what} }) . "\n"
	} grep { @{ $queues->{$_} } } sort keys %$queues;
}

1;
