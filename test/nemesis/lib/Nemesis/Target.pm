# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Target - what the faults are aimed at: locks, claims, ...

=head1 SYNOPSIS

  # lib/Nemesis/Target/Claims.pm
  package Nemesis::Target::Claims;
  use parent 'Nemesis::Target';
  sub share { return 1; }
  sub turn { ... }
  sub judge { ... }

A target is a module in lib/Nemesis/Target. The run finds it by itself, and knows nothing of any
target. All targets are under fire together, with the same servers and the same schedule; C<make
nemesis TARGETS=claims> plays with some of them.

=head1 WHAT A TARGET SAYS

Each has a default, but C<turn>, C<last_turn>, C<judge>, C<summary> and C<activity>. C<$run> is the Nemesis::Run.

  share         its part of the run's SQL clients, in proportion to those of the other targets
  server_conf   settings of the three database servers, lines of postgresql.conf
  prepare($run) is called when all servers run, before any client starts
  clients($run, $count)
                who takes part: hashes with name, class (SqlClient, CuratorClient), and what else
                belongs to its configuration. See sql_client of Nemesis::Run for a client of a
                database server; servers are $run->busy_server($n), or $run->quiet_server, where at
                most one client may be. Default: so many of the busy ones. With pid_file, the client
                is a service whose process stop_curator stops; the client writes its pid there
  turn($client) what a client, a process of its own, does again and again: attempts, which it
                appends to its history, see Nemesis::History
  last_turn($client)
                tries everything once more, until it succeeds
  is_under_way(@attempts)
                the faults begin when every target says so. Default: there is an attempt
  paths         the faults delete nodes below these
  users         a query of the pid and a state (text; "held" comes before "waiting") of backends
                that are in the midst of what the target is about: faults stop, kill, cancel and
                terminate these. undef: the target leaves that to the others
  emptied($run) no node may be left below these after all clients have gone; default: the paths
  describe($run)
                a text for the diagnosis of a run that is stuck
  judge(%history)
                what must not be in the history, when all is over. Given are attempts, interventions,
                session_timeout and the target's evidence; returns a hash:
                  violations  [ { kind => ..., text => ... }, ... ]
                  counts      { key => number, ... }
  evidence($run)  what it must know besides
  settles($attempt)
                has this attempt inserted its row into the table attempts, if it has committed?
  summary       a list of [ label, keys of counts, whose sum it is ], for the table at the end
  activity      a key of counts, and what it says: the run was worth something
  kinds         its own kinds of violations; each becomes a test of the run

=head1 INTERVENTIONS

An intervention is what an administrator may do, but takes a lock from a living session:
its node is deleted, or its session closed. No lease foresees that, and ZooKeeper tells
the holder later than it grants the lock to others. So it excuses the holder it hit. A hash:

  from, to   when; no to: it was not seen to end
  path, czxids   of the nodes deleted; without czxids, any
  server         or: the database server whose session was closed. It may hear of it a
                 session timeout later, and hand locks on among its own until then

=cut

package Nemesis::Target;

use v5.36;

use File::Basename qw(basename dirname);
use List::Util qw(max sum0);

# One of each module, sorted by name; or of those with the names given ('locks', 'claims').
sub all($class, @names)
{
	my %wanted = map { lc $_ => 1 } @names;
	my @targets;
	foreach my $file (sort glob(dirname(__FILE__) . '/Target/*.pm'))
	{
		require $file;
		my $target = "Nemesis::Target::${\ basename($file, '.pm')}"->new;
		push @targets, $target if !@names || delete $wanted{ $target->name };
	}
	die "there is no target " . join(', ', sort keys %wanted) . "\n" if %wanted;
	return @targets;
}

sub new($class) { return bless {}, $class; }

# 'claims', of Nemesis::Target::Claims
sub name($self) { return lc ref($self) =~ s/.*:://r; }
sub share        { return 1; }
sub server_conf  { return (); }
sub prepare      { return; }

sub clients($self, $run, $count)
{
	return map {
		{ $run->sql_client($run->busy_server($_), '-' . $self->name . $_) }
	} 1 .. max(4, $count);
}

sub is_under_way($self, @attempts) { return scalar @attempts; }
sub paths        { return (); }
sub users        { return undef; }
sub emptied($self, $run) { return $self->paths; }
sub describe     { return ''; }
sub evidence     { return (); }
sub settles      { return 0; }
sub kinds        { return (); }

# Violations: errors that no fault accounts for. Any statement may be cancelled, terminated, crash with its server,
# find that starting, no connection, no ZooKeeper or no worker; what else may happen to some is "more".
sub unexpected_errors($attempts, @more)
{
	my $expected = join '|', qw(57014 57P0[123] 08... 58030 55000), @more;
	return map { { kind => 'unexpected error', text => "$_->{id}: $_->{error}" } }
	  grep { defined $_->{sqlstate} && $_->{sqlstate} !~ /^(?:$expected)$/ } @$attempts;
}

# How often there is each outcome
sub outcomes(@attempts)
{
	my %count;
	$count{ $_->{outcome} }++ foreach @attempts;
	return %count;
}

sub by_path(@attempts)
{
	my %by_path;
	push @{ $by_path{ $_->{path} } }, $_ foreach @attempts;
	return %by_path;
}

# Did an administrator take away what a server had on a path, under a token, within some time?
sub is_excused($arg, $had, $from, $until)
{
	foreach my $did (@{ $arg->{interventions} || [] })
	{
		next if $did->{from} > $until;
		next if grep { defined $did->{$_} && $did->{$_} ne ($had->{$_} // '') } qw(path server);
		return 1 if $did->{czxids} && defined $had->{token}
		  ? grep { $_ == $had->{token} >> 12 } @{ $did->{czxids} }
		  : !defined $did->{to} || $did->{to} + $arg->{session_timeout} > $from;
	}
	return 0;
}

# Violations, lines of the table at the end, and [ number, minimum, description ] of what there was to judge
sub check($self, $run, @attempts)
{
	my @told    = _settle($run, grep { $self->settles($_) } @attempts);
	my $verdict = $self->judge(
		attempts        => \@attempts,
		interventions   => $run->interventions,
		session_timeout => $run->session_timeout,
		$self->evidence($run));
	my %count = %{ $verdict->{counts} };
	my ($done, $description) = $self->activity;
	return {
		violations => [ @told, @{ $verdict->{violations} } ],
		activity   => [ $count{$done} // 0, $run->client_count, $description ],
		summary    => [ map { my ($label, @keys) = @$_; [ $label, sum0 map { $_ // 0 } @count{@keys} ] } $self->summary ] };
}

# Settles by the servers' own record which transactions have committed, and when, in the attempts
# themselves. Returns violations, of kinds "false refusal" and "lost commit": a client was told the opposite.
sub _settle($run, @attempts)
{
	my (%committed, @violations);
	foreach my $server ($run->servers)
	{
		my $rows = $server->value(
			'SELECT id, extract(epoch FROM pg_xact_commit_timestamp(xmin)) FROM attempts');
		$committed{$1} = $2 while $rows =~ /^(.*)\|(.*)$/mg;
	}
	foreach my $attempt (grep { $_->{kind} eq 'sql' } @attempts)
	{
		my $at = delete $committed{ $attempt->{id} };
		if (defined $at)
		{
			$attempt->{commit_at} = $at - $attempt->{clock};
			push @violations, {
				kind => 'false refusal',
				text => "$attempt->{id} was told '$attempt->{outcome}', but has committed" }
			  unless $attempt->{outcome} =~ /^(?:committed|unknown)$/;
			$attempt->{outcome} = 'committed';
		}
		elsif ($attempt->{outcome} eq 'committed')
		{
			push @violations, { kind => 'lost commit', text => "$attempt->{id} was told that it had committed" };
		}
		elsif ($attempt->{outcome} eq 'unknown')
		{
			$attempt->{outcome} = 'aborted';
		}
	}
	return @violations;
}

1;
