# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::History - what the clients did, one line of JSON per attempt

=head1 SYNOPSIS

  Nemesis::History->add("$dir/a1.jsonl", { id => 'a1.7', path => '/n/0', granted => now, ... });
  my @attempts = Nemesis::History->read("$dir/a1.jsonl");

=head1 AN ATTEMPT

Times are seconds of CLOCK_MONOTONIC, the same for all processes of a machine. Each is
taken such that the hold is rather shorter than longer than what the client believed. This is
an attempt to take a lock; those of other targets have id, client, kind, told, outcome, sqlstate
and error, too, and the rest as their checker says.

  id         unique; also the key of the row that its transaction inserts
  client     who: a client makes one attempt after the other
  kind       'sql' or 'curator'
  server     database server, of kind sql
  path       the lock
  scope      'transaction' or 'session', of kind sql
  guard      zklock.commit_guard, of kind sql
  asked      before the lock was asked for
  granted    after the call had said that it is held; missing if it was not
  token      fencing token
  until      the client believes to hold it until then: before COMMIT was sent; if an
             error came earlier, after the last statement that succeeded
  told       when the outcome was known
  clock      CLOCK_REALTIME less CLOCK_MONOTONIC
  outcome    timeout    not granted in time
             failed     not granted: error
             committed
             refused    the commit, or a statement, failed with 40001
             lost       a Curator client could not prove that its node was there
             aborted    another error; the transaction did not commit
             unknown    the connection broke at COMMIT
  sqlstate, error  of an error
  commit_at  when the transaction's commit record was written, if it was: added from
             what the database servers say afterwards, which settles "unknown"

=cut

package Nemesis::History;

use v5.36;

use Carp;
use Exporter 'import';
use JSON::PP;
use List::Util qw(max);
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC CLOCK_REALTIME);

our @EXPORT_OK = qw(now clock_difference);

my $json = JSON::PP->new->utf8->canonical;

sub now :prototype() () { return clock_gettime(CLOCK_MONOTONIC); }

# Whoever is held up between the two reads too little; never too much.
sub clock_difference :prototype() ()
{
	return max map { clock_gettime(CLOCK_REALTIME) - clock_gettime(CLOCK_MONOTONIC) } 1 .. 5;
}

sub add($class, $file, $record)
{
	open(my $handle, '>>', $file) or croak "$file: $!";
	print $handle $json->encode($record), "\n";
	return;
}

# A client that was killed may have left half a line.
sub read($class, $file)
{
	open(my $handle, '<', $file) or croak "$file: $!";
	return map { $json->decode($_) } grep { /\n\z/ } <$handle>;
}

1;
