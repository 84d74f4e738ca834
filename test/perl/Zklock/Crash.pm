# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Crash - a lock whose server crashes, and a session elsewhere that waits for it

=head1 SYNOPSIS

  use Zklock::Cast;
  use Zklock::Crash qw(:all);

  Zklock::Crash::cast($zk, $a, $b);

  my $id = set_up();       # tests: $s{holder} of $a holds $path, $s{heir} of $b waits for it
  $a->stop('immediate');
  is_taken($id, '...');    # a test: the lock is still taken, by the session that was $a's
  ...
  is($s{heir}->finish, 't', 'the session left behind is ended');
  no_worker_failed($a, $mark, '...');
                           # a test: no worker of $a has ended since then, as the log tells
  tear_down();             # all sessions end; returns when the path is empty

=cut

package Zklock::Crash;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;
use Zklock::Cast;
use Zklock::Util qw(wait_until);

our @EXPORT_OK   = qw($path set_up tear_down is_taken no_worker_failed);
our %EXPORT_TAGS = (all => \@EXPORT_OK);
our $path        = '/r/lock';

my ($zk, $victim, $other);

sub cast { ($zk, $victim, $other) = @_; return; }

# Returns the id of the session that holds the lock.
sub set_up
{
	hold($victim, 'holder', $path);
	queue($other, 'heir', $path);
	return $victim->session_id;
}

sub tear_down
{
	all_disconnect();
	wait_until { !$zk->children($path) } "$path to be empty";
	return;
}

sub is_taken
{
	my ($id, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok((grep { $_ eq $id } $zk->owners($path)) && $s{heir}->busy, $name);
	return;
}

sub no_worker_failed
{
	my ($server, $mark, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	unlike($server->log_since($mark), qr/zklock worker" \(PID \d+\) (?:exited|was terminated)|PANIC/, $name);
	return;
}

1;
