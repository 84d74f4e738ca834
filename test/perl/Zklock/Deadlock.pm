# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Deadlock - sessions that wait for each other in a circle: one gives up

=head1 SYNOPSIS

  use Zklock::Deadlock;

  my ($one, $two) = in_transactions($a->session(name => 'one'), $a->session(name => 'two'));
  ...
  my $victim = one_victim([ $one, $two ], [ $one, 'ExclusiveLock on ZooKeeper path "/a"', $two,
	  'ShareLock on transaction \d+' ]);

=head1 EXPORTS

  in_transactions(@sessions)    begins a transaction in each; returns them
  one_victim([ @sessions ], [ @cycle ] [, $seen ])
                                tests: each session runs a statement that waits; one of them, which
                                is returned, is told of a deadlock, and its DETAIL has the cycle. It
                                is rolled back, and the others commit as they finish. The cycle is
                                a list of sessions, each with a regular expression for what it waits
                                for, and waits for the next; the last one for the first
  cycle_regex($victim, $seen, @cycle)
                                what such a DETAIL looks like. A cycle that was seen 'across' servers
                                names them, one that was seen 'here' does not; by default it is the
                                former if sessions of several servers are in it

=cut

package Zklock::Deadlock;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;
use Zklock::Util qw(wait_until);

our @EXPORT = qw(in_transactions one_victim cycle_regex);

sub in_transactions
{
	my (@sessions) = @_;
	$_->query('BEGIN') foreach @sessions;
	return @sessions;
}

sub process
{
	my ($session, $victim, $where) = @_;
	my $name = $session->server->name;
	return 'process ' . $session->pid
	  . ($where eq 'across' ? qr/ of server "\Q$name\E"/ : '');
}

sub cycle_regex
{
	my ($victim, $seen, @cycle) = @_;
	my %servers = map { ref $_ ? ($_->server->name => 1) : () } @cycle;
	my $where   = $seen || (keys %servers > 1 ? 'across' : 'here');
	my $start   = (grep { ref $cycle[$_] && $cycle[$_] == $victim } 0 .. $#cycle)[0];
	@cycle = (@cycle[ $start .. $#cycle ], @cycle[ 0 .. $start - 1 ]);
	my @lines;
	for (my $i = 0; $i < @cycle; $i += 2)
	{
		my $next = $cycle[ ($i + 2) % @cycle ];
		push @lines, ucfirst(process($cycle[$i], $victim, $where)) . " waits for $cycle[ $i + 1 ]; blocked by "
		  . process($next, $victim, $where) . '\.';
	}
	my $text = join "\n", @lines;
	return qr/^$text$/;
}

# The results by session, as they end; who ends well lets the others go on.
sub ends
{
	my (@waiting) = @_;
	my @ended;
	while (@waiting)
	{
		my $done;
		wait_until { ($done) = grep { !$_->busy } @waiting } 'another session to end';
		push @ended, [ $done, $done->result ];
		$done->query($ended[-1][1]{ok} ? 'COMMIT' : 'ROLLBACK');
		@waiting = grep { $_ != $done } @waiting;
	}
	return @ended;
}

sub one_victim
{
	my ($sessions, $cycle, $seen) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @ended  = ends(@$sessions);
	my @failed = grep { !$_->[1]{ok} } @ended;
	is(scalar @failed, 1, 'one session gives up') or diag explain [ map { $_->[1] } @ended ];
	my ($victim, $result) = @{ $failed[0] || [ $sessions->[0], {} ] };
	is($result->{sqlstate}, '40P01', $victim->name . ' is told of a deadlock');
	is($result->{message}, 'deadlock detected', 'in the words of PostgreSQL');
	like($result->{detail}, cycle_regex($victim, $seen, @$cycle), 'the whole cycle is told');
	is($result->{hint}, 'See server log for query details.', 'and where more is told');
	return $victim;
}

1;
