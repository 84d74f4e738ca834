# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Deadlock - sessions that wait for each other in a circle: one gives up

=head1 SYNOPSIS

  use Zklock::Deadlock;

  Zklock::Deadlock::scene($zk, [ $a, $b ], '/d/a', '/d/b');
  my ($a1, $a2) = sessions($a, 'a1 a2');
  my ($b1)      = sessions($b, 'b1');
  circle('a lock and a row', 'a1 a2', 'a1 has /d/a, a2 has row, a2 wants /d/a, a1 wants row', victim => 'a2');

=head1 STEPS

What sessions do one after the other, parted by commas: one C<has>, C<shares>, C<wants> or C<wants to
share> something, the latter until PostgreSQL and ZooKeeper know that it waits, or it has been given up;
it C<releases> a permit; or a server C<settles>. Locks are asked for with zk_xact_lock(), or another
function named in $asks. What sessions have or want is

  /d/a         a lock of zklock's        /d/a+/d/b    several in one call
  /d/t//x/y    the tree /d/t/x/y, of which /d/t is the root
  /d/s:2       a permit of a semaphore that has two
  #7           an advisory lock          row, table   the row 1 of table t, or all of it

=head1 EXPORTS

  sessions($server, $names)     makes sessions with these names, and returns them
  steps($text)                  takes these steps
  circle($name, $cycle, $steps, %more)
                                a subtest: in transactions of all sessions with a part in the steps, which
                                are a text or a list of texts and of code, those named in the cycle wait
                                each for the next, and the last for the first; one gives up, and the others
                                commit. More:
                                  victim  the name of who gives up
                                  first   what each session runs first
                                  after   code, called with the victim
  go_on(@sessions)              tests: each gets what it waits for, and commits, in whichever order
  gives_up($cycle)              tests: the first of these sessions is told of a deadlock and of this cycle,
                                and is rolled back
  clean                         a test: nothing is left behind in the scene
  zk($path [, $mode])           what is waited for, in a cycle: a list of sessions, each with a regular
                                expression for what it waits for
  in_transactions(@sessions)    begins a transaction in each; returns them
  one_victim($cycle [, $seen])
                                tests: one of these sessions is told of a deadlock, and its DETAIL has
                                the cycle; returns it. The others commit as they finish. Instead of
                                names the cycle may be a list, see zk. One that was seen 'across'
                                servers names them, one that was seen 'here' does not; by default it is
                                the former if sessions of several servers are in it

=cut

package Zklock::Deadlock;

use v5.36;

use Carp;
use Exporter qw(import);
use Test::More;
use Zklock::Server;
use Zklock::Util qw(wait_until);

our @EXPORT = qw(sessions steps circle $asks go_on gives_up clean zk in_transactions one_victim);
our $asks = 'zk_xact_lock';

# What PostgreSQL itself has to offer: how to have it, how to want it, and what that waits for
my $update = 'UPDATE t SET n = n + 1 WHERE id = 1';
my %offers = (
	row   => [ $update, $update, 'ShareLock on transaction \d+' ],
	table => [ 'SELECT * FROM t', 'LOCK TABLE t', 'AccessExclusiveLock on relation \d+ of database \d+' ]);

my (@scene, %sessions);

# What each session waits for since the last step in which it wanted something
my %awaited;

sub scene { @scene = @_; return; }

sub clean
{
	return Zklock::Server->assert_clean(@scene);
}

sub sessions($server, $names) { return map { $sessions{$_} = $server->session(name => $_) } split / /, $names; }
sub zk($path, $mode = undef) { return ($mode || 'Exclusive') . qq{Lock on ZooKeeper path "$path"}; }

# On a path of zklock's, or for PostgreSQL
sub waits($session, $sql, $path)
{
	my $pid        = $session->pid;
	my $is_waiting = $path
	  ? "SELECT count(*) = 1 FROM zk_locks WHERE pid = $pid AND path = '$path' AND state = 'waiting' AND node ~ '\\d{10}\$'"
	  : "SELECT wait_event_type IN ('Lock', 'Extension') FROM pg_stat_activity WHERE pid = $pid";
	$session->query_start($sql);
	wait_until { !$session->busy || $session->server->value($is_waiting) eq 't' } $session->name . " to wait for $sql";
	return;
}

sub go_on(@sessions)
{
	foreach my $end (ends(@sessions))
	{
		my ($session, $result) = @$end;
		ok($result->{ok} && $result->{text} ne 'f', $session->name . ' goes on') or diag explain $result;
	}
	return;
}

# Sessions, each with what it waits for, of their names
sub cycle($names) { return map { ($sessions{$_} => $awaited{$_}) } split / /, $names; }

sub gives_up($cycle)
{
	my @cycle   = ref $cycle ? @$cycle : cycle($cycle);
	my $session = $cycle[0];
	my $result = $session->result;
	is($result->{sqlstate}, '40P01', $session->name . ' is told of a deadlock');
	like($result->{detail}, cycle_regex($session, undef, @cycle), 'the whole cycle is told');
	$session->query('ROLLBACK');
	return;
}

# How to have something, how to want it, what that waits for, and at which path
sub offer($what, $shared)
{
	return @{ $offers{$what} } if $offers{$what};
	my ($function, $mode) = $shared ? ('zk_xact_lock_shared', 'Share') : ($asks, 'Exclusive');
	my ($sql, $awaited, $path) =
	    $what =~ /^#(\d+)$/       ? ("SELECT pg_advisory_xact_lock($1)", 'ExclusiveLock on advisory lock \[.*\]')
	  : $what =~ m{^(.+)//(.+)$}  ? ("SELECT zk_xact_lock_tree('$1/$2', '$1')", zk("$1/$2"))
	  : $what =~ m{^/.*\+(/.+)$} ? ("SELECT zk_xact_lock('{" . $what =~ tr/+/,/r . "}'::text[])", zk($1))
	  : $what =~ m{^(/.+):(\d+)$} ? ("SELECT zk_semaphore_acquire('$1', $2)", qq{SemaphorePermit on ZooKeeper path "$1"}, $1)
	  : $what =~ m{^/}            ? ("SELECT $function('$what')", zk($what, $mode), $what)
	  :                             croak "nobody can have or want $what";
	return ($sql, $sql, $awaited, $path);
}

sub step($session, $does, $what)
{
	my ($have, $want, $awaited, $path) = offer($what, scalar $does =~ /share/);
	if ($does =~ /wants/)
	{
		waits($session, $want, $path);
		$awaited{ $session->name } = $awaited;
		return;
	}
	my $got = $session->query($have);
	is($got, 't', $session->name . " holds $what") if $what =~ m{^/};
	return;
}

sub steps($text)
{
	foreach (split /,\s*/, $text)
	{
		if    (/^(\w+) settles$/)                                { $_->settle foreach grep { $_->name eq $1 } @{ $scene[1] }; }
		elsif (/^(\w+) (has|shares|wants(?: to share)?) (\S+)$/) { step($sessions{$1}, $2, $3); }
		elsif (/^(\w+) releases (\S+)$/)                         { $sessions{$1}->query("SELECT zk_semaphore_release('$2')"); }
		else                                                     { croak "no step: $_"; }
	}
	return;
}

sub circle($name, $cycle, $steps, %more)
{
	my @steps = ref $steps ? @$steps : $steps;
	my %part  = map { $_ => $sessions{$_} } map { ref ? () : /(\w+) (?:has|shares|wants)\b/g } @steps;
	subtest $name => sub {
		in_transactions(values %part);
		if ($more{first}) { $_->query($more{first}) foreach values %part; }
		ref ? $_->() : steps($_) foreach @steps;
		my $victim = one_victim($cycle);
		is($victim->name, $more{victim}, 'which it should be') if $more{victim};
		$more{after}->($victim) if $more{after};
		delete @part{ split / /, $cycle };
		go_on(values %part);
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
	my @cycle    = ref $cycle ? @$cycle : cycle($cycle);
	my @sessions = grep { ref } @cycle;
	my @ended  = ends(@sessions);
	my @failed = grep { !$_->[1]{ok} } @ended;
	is(scalar @failed, 1, 'one session gives up') or diag explain [ map { $_->[1] } @ended ];
	my ($victim, $result) = @{ $failed[0] || [ $sessions[0], {} ] };
	is($result->{sqlstate}, '40P01', $victim->name . ' is told of a deadlock');
	is($result->{message}, 'deadlock detected', 'in the words of PostgreSQL');
	like($result->{detail}, cycle_regex($victim, $seen, @cycle), 'the whole cycle is told');
	is($result->{hint}, 'See server log for query details.', 'and where more is told');
	return $victim;
}

1;
