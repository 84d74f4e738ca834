# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Semaphore - permits of a semaphore, for sessions of several servers

=head1 DESCRIPTION

C<Zklock::Semaphore::cast($zk, $a, $b)> names the servers. A session gets a permit by acquire($session, 3): 't', one of
three; acquire($session, 3, '0') does not wait, and returns 't' or 'f'.

=head1 EXPORTS

  $path                    the semaphore; new_path() makes up another one
  acquire($session, $permits [, $timeout]), acquire_start(...), release($session)
  sql($permits [, $timeout])
                           the statement of acquire
  leases, turns            names of the nodes that there are: permits or waits for one at the
                           head, and the queue behind
  wait_row($session, $condition)
                           until zk_locks shows the session's contender like that; the row
  $has_turn, $has_lease    conditions: it waits in the queue; at its head, with a lease
  acquire_until($session, $permits, $condition)
                           acquire_start, until zk_locks shows it like that; the row
  ask($session, $permits, $at_head)
                           acquire_start, and returns the row when the wait has come so far,
                           and both servers have heard of it
  settled($held [, $what]) until nothing is under way, and so many permits are held

=cut

package Zklock::Semaphore;

use v5.36;

use Exporter qw(import);
use List::Util qw(sum);
use Zklock::Util qw(wait_until);

our @EXPORT = qw($path new_path acquire acquire_start acquire_until release sql leases turns
  wait_row $has_turn $has_lease ask settled);

our $path = '/t/slots';
my $blocked = '(blocked_by_pid IS NOT NULL OR blocked_by_node IS NOT NULL)';
our $has_lease = "state = 'waiting' AND node ~ 'lease-\\d{10}\$' AND $blocked";
our $has_turn  = "state = 'waiting' AND node ~ 'lock-\\d{10}\$' AND $blocked";

my ($zk, @servers);
my $paths = 0;

sub cast { ($zk, @servers) = @_; return; }

sub new_path { return $path = '/t/faulty/' . ++$paths; }

sub sql($permits, $timeout = undef)
{
	return "SELECT zk_semaphore_acquire('$path', $permits" . (defined $timeout ? ", '$timeout')" : ')');
}

sub acquire($session, @arg) { return $session->query(sql(@arg)); }
sub acquire_start($session, @arg) { return $session->query_start(sql(@arg)); }
sub acquire_until($session, $permits, $condition) { return wait_row(acquire_start($session, $permits), $condition); }
sub release($session) { return $session->query("SELECT zk_semaphore_release('$path')"); }
sub wait_row($session, $condition) { return $session->wait_row($condition, $path); }
sub leases { return $zk->children("$path/leases"); }
sub turns  { return $zk->children("$path/locks"); }

sub ask($session, $permits, $at_head)
{
	my $row = acquire_until($session, $permits, $at_head ? $has_lease : $has_turn);
	# A session that comes to one of the servers now queues behind all that came to the other.
	$_->settle foreach @servers;
	return $row;
}

sub settled($held, $what = undef)
{
	wait_until { turns() == 0 && leases() == $held && sum(map { $_->lock_count } @servers) == $held }
	sub {
		($what ? "$what: " : '') . "$held permits and nothing else\nleft: @{[ turns(), leases() ]}\n"
		  . join('', map { $_->describe_locks } @servers);
	};
	return;
}

1;
