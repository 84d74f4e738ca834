# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Release - a lock, the ways to release it, and a session elsewhere that waits for it

=head1 SYNOPSIS

  use Zklock::Release;

  Zklock::Release::cast($zk, $a, $b);      # locks are held on $a and waited for on $b
  release_by('commit',
      take    => [ 'BEGIN', "SELECT zk_xact_lock('/lock')" ],
      hold    => ["SELECT zk_unlock('/lock')"],
      release => 'COMMIT');

=head1 EXPORTS

C<release_by($name, ...)>, a number of tests: a session takes the lock with some statements, the
session $waiter of the other server waits for it, some more statements do not release it, one
does, the waiter gets it, and nothing stays behind.

  take     statements, '/lock' standing for $path
  hold     statements that must not release it yet
  release  one statement, or code, that does; the code gets the session
  expect   SQLSTATE of the statement that releases, if it is an error
  rows     how many rows of zk_locks show it held: one for each scope, default 1
  open     a transaction is open afterwards
  over     the session has ended afterwards
  permit   /lock stands for a semaphore of one permit instead

C<still_waits($name)>, a test: the waiter waits, and its server knows of all that happened before:
had the lock been released, the waiter would have it. C<wait_behind> waits until the waiter
stands behind the holder. C<@session> and C<@transaction> are statements that take the lock at
these levels.

=cut

package Zklock::Release;

use v5.36;

use Exporter qw(import);
use Test::More;
use Zklock::Util qw(wait_until);

our @EXPORT = qw($path $waiter @session @transaction release_by still_waits wait_behind);

our $path = '/t/release';
our $waiter;
our @session     = ("SELECT zk_lock('/lock')");
our @transaction = ('BEGIN', "SELECT zk_xact_lock('/lock')");

my ($zk, $a, $b);

sub cast
{
	($zk, $a, $b) = @_;
	$waiter = $b->session(name => 'waiter');
	return;
}

sub still_waits($name)
{
	$b->settle;
	ok($waiter->busy, $name);
	return;
}

sub wait_behind { $waiter->wait_row('blocked_by_node IS NOT NULL'); return; }

sub release_by($name, %way)
{
	my $path = $way{permit} ? '/t/permits' : $path;
	my ($ask, $give, @folders) = $way{permit}
	  ? ("zk_semaphore_acquire('$path', 1, '30s')", "zk_semaphore_release('$path')", '/locks', '/leases')
	  : ("zk_lock('$path', '30s')", "zk_unlock('$path')", '');
	my $s = $a->session;
	foreach my $sql (@{ $way{take} })
	{
		my $r = $s->try($sql =~ s{/lock}{$path}gr);
		$r->{ok} or die "$name: $r->{error}";
	}
	is($a->lock_count("path = '$path' AND state = 'held'"), $way{rows} || 1, "$name: it is held");
	$waiter->query_start("SELECT $ask");
	wait_behind();
	foreach my $sql (@{ $way{hold} || [] })
	{
		$s->try($sql =~ s{/lock}{$path}gr);
		still_waits("$name: still held after $sql");
	}
	if (ref $way{release})
	{
		still_waits("$name: still held");
		$way{release}->($s);
	}
	else
	{
		my $r = $s->try($way{release} =~ s{/lock}{$path}gr);
		is($r->{sqlstate}, $way{expect} || '00000', "$name: $way{release}") or diag($r->{error});
	}
	my $r = $waiter->result;
	is($r->{text}, 't', "$name: the waiter gets it") or diag($r->{error});
	is($waiter->query("SELECT $give"), 't', "$name: and can release it");
	wait_until { $a->lock_count == 0 && $b->lock_count == 0 && !map { $zk->children("$path$_") } @folders }
	sub { "$name: nothing to be left\n" . $a->describe_locks . $b->describe_locks };
	$s->query('ROLLBACK') if $way{open};
	$s->disconnect unless $way{over};
	return;
}

1;
