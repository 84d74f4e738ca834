# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Deadlock - sessions that wait for each other in a circle: one gives up

=head1 SYNOPSIS

  use Zklock::Deadlock;

  Zklock::Deadlock::scene($zk, [ $a, $b ], '/d/a', '/d/b');
  circle('a lock and a row', [ $one, zk('/d/a'), $two, $row ],
	  sub {
		  lock($one => '/d/a');
		  $two->query('UPDATE t SET n = 1');
		  waits($two, '/d/a');
		  waits($one, 'UPDATE t SET n = 2');
	  }, victim => 'two');

=head1 EXPORTS

  circle($name, [ @cycle ], sub { ... } [, %more])
                                a subtest: in transactions of the sessions in the cycle the code has each
                                wait for the next; one of them gives up, and the others commit. The cycle is
                                a list of sessions, each with a regular expression for what it waits
                                for, and waits for the next; the last one for the first. More:
                                  victim  the name of who gives up
                                  others  [ @sessions ] that have a transaction and go on in the end
                                  seen    as for cycle_regex
                                  after   code, called with the victim
  lock($session => $path, ...), waits($session => $what, ...)
                                one after the other, with zk_xact_lock(), or another function named in
                                $asks; waits() returns when PostgreSQL and ZooKeeper know that it
                                waits, or when it has been given up. Instead of a path: a statement
  share($session => $path, ...), waits_to_share($session, $path)
                                the same with zk_xact_lock_shared()
  go_on(@sessions)              tests: each gets what it waits for, and commits
  gives_up($session, @cycle)    tests: it is told of a deadlock and of this cycle, and is rolled back
  clean                         a test: nothing is left behind in the scene
  zk($path [, $mode]), $row, $advisory
                                what is waited for, in a cycle
  in_transactions(@sessions)    begins a transaction in each; returns them
  one_victim([ @cycle ] [, $seen])
                                tests: one of the sessions is told of a deadlock, and its DETAIL has
                                the cycle; returns it. The others commit as they finish
  cycle_regex($victim, $seen, @cycle)
                                what such a DETAIL looks like. A cycle that was seen 'across' servers
                                names them, one that was seen 'here' does not; by default it is the
                                former if sessions of several servers are in it

=cut

package Zklock::Deadlock;

use v5.36;

use Exporter qw(import);
use Test::More;
use Zklock::Server;
use Zklock::Util qw(wait_until);

our @EXPORT = qw(circle lock share waits waits_to_share $asks go_on gives_up clean zk $row $advisory in_transactions one_victim cycle_regex);
our $asks = 'zk_xact_lock';
my $share = 'zk_xact_lock_shared';
our $row      = 'ShareLock on transaction \d+';
our $advisory = 'ExclusiveLock on advisory lock \[.*\]';

my @scene;

sub scene { @scene = @_; return; }

sub clean
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return Zklock::Server->assert_clean(@scene);
}

sub zk($path, $mode = undef) { return ($mode || 'Exclusive') . qq{Lock on ZooKeeper path "$path"}; }

sub _lock($function, @pairs)
{
	local $Test::Builder::Level = $Test::Builder::Level + 2;
	while (my ($session, $path) = splice @pairs, 0, 2)
	{
		is($session->query("SELECT $function('$path')"), 't', $session->name . " holds $path");
	}
	return;
}

sub lock(@pairs) { return _lock($asks, @pairs); }
sub share(@pairs) { return _lock($share, @pairs); }

sub waits(@pairs)
{
	while (my ($session, $what) = splice @pairs, 0, 2)
	{
		my $pid        = $session->pid;
		my $is_path    = $what =~ m{^/};
		my $is_waiting = $is_path
		  ? "SELECT count(*) = 1 FROM zk_locks WHERE pid = $pid AND path = '$what' AND state = 'waiting' AND node ~ '\\d{10}\$'"
		  : "SELECT wait_event_type IN ('Lock', 'Extension') FROM pg_stat_activity WHERE pid = $pid";
		$session->query_start($is_path ? "SELECT $asks('$what')" : $what);
		wait_until { !$session->busy || $session->server->value($is_waiting) eq 't' } $session->name . " to wait for $what";
	}
	return;
}

sub waits_to_share($session, $path) { local $asks = $share; return waits($session, $path); }

sub go_on(@sessions)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $session (@sessions)
	{
		my $result = $session->result;
		ok($result->{ok} && $result->{text} ne 'f', $session->name . ' goes on') or diag explain $result;
		$session->query('COMMIT');
	}
	return;
}

sub gives_up($session, @cycle)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = $session->result;
	is($result->{sqlstate}, '40P01', $session->name . ' is told of a deadlock');
	like($result->{detail}, cycle_regex($session, undef, @cycle), 'the whole cycle is told');
	$session->query('ROLLBACK');
	return;
}

sub circle($name, $cycle, $code, %more)
{
	my @others = @{ $more{others} || [] };
	subtest $name => sub {
		in_transactions(@others, grep { ref } @$cycle);
		$code->();
		my $victim = one_victim($cycle, $more{seen});
		is($victim->name, $more{victim}, 'which it should be') if $more{victim};
		$more{after}->($victim) if $more{after};
		go_on(@others);
		clean();
	};
	return;
}

sub in_transactions(@sessions)
{
	$_->query('BEGIN') foreach @sessions;
	return @sessions;
}

sub process($session, $where = undef)
{
	my $name = $session->server->name;
	return 'process ' . $session->pid . ($where eq 'across' ? qr/ of server "\Q$name\E"/ : '');
}

sub cycle_regex($victim, $seen, @cycle)
{
	my %servers = map { ref $_ ? ($_->server->name => 1) : () } @cycle;
	my $where   = $seen || (keys %servers > 1 ? 'across' : 'here');
	my $start   = (grep { ref $cycle[$_] && $cycle[$_] == $victim } 0 .. $#cycle)[0];
	@cycle = (@cycle[ $start .. $#cycle ], @cycle[ 0 .. $start - 1 ]);
	my @lines;
	for (my $i = 0; $i < @cycle; $i += 2)
	{
		my $next = $cycle[ ($i + 2) % @cycle ];
		push @lines, ucfirst(process($cycle[$i], $where)) . " waits for $cycle[ $i + 1 ]; blocked by "
		  . process($next, $where) . '\.';
	}
	my $text = join "\n", @lines;
	return qr/^$text$/;
}

# The results by session, as they end; who ends well lets the others go on.
sub ends(@waiting)
{
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

sub one_victim($cycle, $seen = undef)
{
	my @sessions = grep { ref } @$cycle;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @ended  = ends(@sessions);
	my @failed = grep { !$_->[1]{ok} } @ended;
	is(scalar @failed, 1, 'one session gives up') or diag explain [ map { $_->[1] } @ended ];
	my ($victim, $result) = @{ $failed[0] || [ $sessions[0], {} ] };
	is($result->{sqlstate}, '40P01', $victim->name . ' is told of a deadlock');
	is($result->{message}, 'deadlock detected', 'in the words of PostgreSQL');
	like($result->{detail}, cycle_regex($victim, $seen, @$cycle), 'the whole cycle is told');
	is($result->{hint}, 'See server log for query details.', 'and where more is told');
	return $victim;
}

1;
