# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Faults - how the faults of a schedule are done, and undone

=head1 SYNOPSIS

  my $faults = Nemesis::Faults->new(
      zookeeper => $zk,               # an ensemble with links
      servers   => [ $a, $b, $c ],
      proxies   => [ [ 3 x Zklock::Proxy ], ... ],   # of each server to the ensemble
      names     => [ sub (@addresses) { ... }, ... ],  # has that server know these addresses of the three
      curators  => [ $pid_file, ... ],
      paths     => [ '/n/0', ... ],                  # below them nodes are deleted
      users     => [ 'SELECT pid, state FROM ...', ... ],   # backends to hit, see Nemesis::Target
      complaint => sub { note $_[0] });   # a fault could not be done

  $faults->begin($event);             # of Nemesis::Schedule; it ends by itself
  $faults->turn;                      # to be called often: does what is due
  $faults->heal;                      # ends all that goes on, and returns when all is up

  $faults->counts;                    # { stop_worker => 3, ... }
  $faults->interventions;             # see Nemesis::Target

A fault that finds nobody to hit (no holder to stop, no waiter to cancel) is counted as
one that missed: C<misses>.

=cut

package Nemesis::Faults;

use v5.36;

use Nemesis::History qw(now);
use PostgreSQL::Test::Utils;
use Zklock::Shell;
use Zklock::Util qw(children_of nap wait_until);

sub new($class, %arg)
{
	my $self = bless { %arg, due => [], asked => [], counts => {}, misses => 0, interventions => [] }, $class;
	# An administrator's own connection: the requests may wait for an ensemble to come back.
	$self->{shell} = Zklock::Shell->new(name => 'administrator');
	$self->{shell}->connect($self->{zookeeper}->connect_string);
	return $self;
}

sub counts        { return $_[0]{counts}; }
sub misses        { return $_[0]{misses}; }
sub interventions { return $_[0]{interventions}; }

# Does something later, or sooner if all is to be healed.
sub _later($self, $seconds, $code)
{
	@{ $self->{due} } = sort { $a->{at} <=> $b->{at} } @{ $self->{due} }, { at => now + $seconds, code => $code };
	return;
}

sub begin($self, $event)
{
	return if $self->{healing};
	# A server that stands still answers no question; it goes on only in a turn of ours.
	return $self->_later(0.5, sub { $self->begin($event) }) if $self->_stands_still($event);
	return $event->{held} ? $self->_await_hold($event, now + 7) : $self->_begin($event);
}

sub _stands_still($self, $event) { return ($self->{still_until}[ $event->{server} ] || 0) > now; }

# A fault that is to meet a lock that will be held for long waits until one has just been
# taken on its database server, but not for ever.
sub _await_hold($self, $event, $until)
{
	return if $self->{healing};
	return $self->begin($event) if $self->_stands_still($event);
	my $held = eval {
		$self->{servers}[ $event->{server} ]->lock_count(
			q{state = 'held' AND path ~ 'slow' AND granted_at > clock_timestamp() - interval '0.3 s'});
	};
	return $self->_begin($event) if $held || now > $until;
	$self->_later(0.1, sub { $self->_await_hold($event, $until) });
	return;
}

sub _begin($self, $event)
{
	my $method = "_$event->{fault}";
	my $hit = eval { $self->$method($event, $self->{servers}[ $event->{server} ]) };
	$self->{complaint}->("$event->{fault}: $@") if $@;
	$hit ? $self->{counts}{ $event->{fault} }++ : $self->{misses}++;
	return;
}

sub turn($self)
{
	while (@{ $self->{due} } && $self->{due}[0]{at} <= now)
	{
		my $due = shift @{ $self->{due} };
		eval { $due->{code}->(); 1 } or $self->{complaint}->("end of a fault: $@");
	}
	$self->_hear_administrator;
	return;
}

sub heal($self)
{
	$self->{healing} = 1;
	while (my $due = shift @{ $self->{due} })
	{
		eval { $due->{code}->(); 1 } or $self->{complaint}->("end of a fault: $@");
	}
	foreach my $server ($self->{zookeeper}->servers)
	{
		$server->start(wait => 0) unless $server->running;
	}
	$self->{zookeeper}->wait_ready;
	wait_until { $self->_hear_administrator; !@{ $self->{asked} } } 'the administrator to have answers';
	$_->wait_session foreach @{ $self->{servers} };
	return;
}

# ---- processes of the database servers

sub _stop_processes($self, $event, @pids)
{
	@pids = grep { kill 'STOP', $_ } @pids;
	$self->_later($event->{duration}, sub { kill 'CONT', @pids });
	return scalar @pids;
}

sub _stop_worker($self, $event, $server) { return $self->_stop_processes($event, $server->worker_pid); }

# Backends that are in the midst of something, but not that of the session which looks for them
sub _busy($self) { return '(' . join(' UNION ', @{ $self->{users} }) . ') busy (pid, state) WHERE pid <> pg_backend_pid()'; }

# They, those that hold a lock before those that wait for one
sub _users($self, $server)
{
	return split /\n/, $server->value("SELECT pid FROM ${\ $self->_busy } ORDER BY state, random()");
}

sub _stop_backend($self, $event, $server) { return $self->_stop_processes($event, ($self->_users($server))[0] // return 0); }

# The postmaster first, so that it starts no more.
sub _stop_server($self, $event, $server)
{
	my $postmaster = $server->node->{_pid};
	# Somewhat longer, so that it has answered the signal by then.
	$self->{still_until}[ $event->{server} ] = now + $event->{duration} + 0.5;
	kill 'STOP', $postmaster;
	return $self->_stop_processes($event, $postmaster, children_of($postmaster));
}

sub _kill_worker($self, $event, $server) { return kill 'KILL', $server->worker_pid; }
sub _kill_backend($self, $event, $server) { return kill 'KILL', ($self->_users($server))[0] // return 0; }

sub _terminate_worker($self, $event, $server)
{
	return $server->value('SELECT pg_terminate_backend(worker_pid) FROM zk_session') eq 't';
}

sub _crash_server($self, $event, $server)
{
	$server->stop('immediate');
	$server->start;
	return 1;
}

sub _signal_users($self, $event, $server, $function)
{
	return $server->value(
		"SELECT count($function(pid)) FROM (SELECT pid FROM
			(SELECT DISTINCT pid FROM ${\ $self->_busy }) d
		 ORDER BY random() LIMIT $event->{count}) s");
}

sub _cancel($self, @arg) { return $self->_signal_users(@arg, 'pg_cancel_backend'); }
sub _terminate($self, @arg) { return $self->_signal_users(@arg, 'pg_terminate_backend'); }

# ---- the administrator
#
# Asks, and goes on; the answer is heard in a later turn.

sub _ask_administrator($self, $did, @request)
{
	$did->{from} = now;
	push @{ $self->{interventions} }, $did;
	push @{ $self->{asked} }, { id => $self->{shell}->send(@request), did => $did };
	return 1;
}

sub _hear_administrator($self)
{
	foreach my $asked (grep { $self->{shell}->ready($_->{id}) } @{ $self->{asked} })
	{
		my $answer = $self->{shell}->answer($asked->{id});
		$asked->{did}{to} = now;
		$asked->{did}{czxids} = $answer->{result}{czxids}
		  if $asked->{did}{path} && $answer->{ok} && !$answer->{result}{error};
	}
	@{ $self->{asked} } = grep { !defined $_->{did}{to} } @{ $self->{asked} };
	return;
}

sub _remove($self, $event, $which)
{
	my @paths = @{ $self->{paths} };
	my $path  = $paths[ $event->{pick} % @paths ];
	return $self->_ask_administrator({ path => $path }, 'remove', $path, $which, {});
}

sub _delete_own($self, $event, $) { return $self->_remove($event, 'first'); }
sub _delete_predecessor($self, $event, $) { return $self->_remove($event, 'last'); }
sub _delete_parent($self, $event, $) { return $self->_remove($event, 'all'); }

sub _expire_session($self, $event, $server)
{
	my $session = $server->zk_session->{session_id} or return 0;
	return $self->_ask_administrator({ server => $server->name }, 'expire_session', $session, {});
}

# ---- between database server and ensemble

my %ways = (
	cut        => [ sub ($way, $event) { $way->cut },                            sub ($way) { $way->heal } ],
	blackhole  => [ sub ($way, $event) { $way->blackhole($event->{direction}) }, sub ($way) { $way->heal } ],
	delay      => [ sub ($way, $event) { $way->delay($event->{ms}) },            sub ($way) { $way->delay(0) } ],
	lose_reply => [ sub ($way, $event) { $way->lose_reply(%{$event}{qw(op nth)}) },  sub ($way) { $way->clear } ]);

sub _disturb($self, $event, $begin, $end)
{
	my @ways = @{ $self->{proxies}[ $event->{server} ] };
	@ways = $ways[ $event->{way} ] if defined $event->{way};
	$begin->($_, $event) foreach @ways;
	$self->_later($event->{duration}, sub { $end->($_) foreach @ways });
	return 1;
}

foreach my $fault (keys %ways)
{
	no strict 'refs';
	*{"_$fault"} = sub ($self, $event, $) { return $self->_disturb($event, @{ $ways{$fault} }); };
}

# The ZooKeeper servers, or one of them, have other addresses, where they cannot be reached until they are back.
sub _move($self, $event, $)
{
	my ($names, @ways) = ($self->{names}[ $event->{server} ], @{ $self->{proxies}[ $event->{server} ] });
	my @moved = defined $event->{way} ? $event->{way} : 0 .. $#ways;
	my @addresses = ('127.0.0.1') x @ways;
	@addresses[@moved] = ('127.0.0.9') x @moved;
	$names->(@addresses);
	$_->cut foreach @ways[@moved];
	$self->_later($event->{duration}, sub { $names->(('127.0.0.1') x @ways); $_->heal foreach @ways[@moved]; });
	return 1;
}

# ---- a Java service

sub _stop_curator($self, $event, $)
{
	my @files = @{ $self->{curators} } or return 0;
	my ($pid) = slurp_file($files[ $event->{server} % @files ]) =~ /(\d+)/ or return 0;
	return $self->_stop_processes($event, $pid);
}

# ---- the ensemble

# One that has been killed is not yet back in the ensemble. If another one is killed then, ZooKeeper 3.8 may lose what
# it has committed: ZOOKEEPER-4643, ZOOKEEPER-4712.
sub _is_returning($self)
{
	return grep { $_->running && !$_->started } $self->{zookeeper}->servers;
}

# Of two followers, any
sub _disturb_ensemble($self, $event, $mode, $begin, $end)
{
	my $zk     = $self->{zookeeper};
	my @found  = grep { $_->running && $_->mode(0.5) eq $mode } $zk->servers or return 0;
	my $server = $found[ $event->{server} % @found ];
	$begin->($zk, $server);
	$self->_later($event->{duration}, sub { $end->($zk, $server) });
	return 1;
}

# The ensemble, and one of its servers
my %how = (
	kill    => [ sub ($zk, $server) { $server->kill9 },        sub ($zk, $server) { $server->start(wait => 0) } ],
	stop    => [ sub ($zk, $server) { $server->pause },        sub ($zk, $server) { $server->resume } ],
	isolate => [ sub ($zk, $server) { $zk->isolate($server) }, sub ($zk, $server) { $zk->rejoin($server) } ]);
foreach my $fault (keys %how)
{
	foreach my $mode (qw(follower leader))
	{
		no strict 'refs';
		*{"_${fault}_$mode"} = sub ($self, $event, $) {
			return 0 if $fault eq 'kill' && $self->_is_returning;
			return $self->_disturb_ensemble($event, $mode, @{ $how{$fault} });
		};
	}
}

# The follower that a database server hangs on. If that is the leader, it is sent elsewhere.
sub _isolate_own($self, $event, $server)
{
	my $zk    = $self->{zookeeper};
	my @ways  = @{ $self->{proxies}[ $event->{server} ] };
	my $until = now + 3;
	while (1)
	{
		my ($port) = ($server->zk_session->{server} || '') =~ /:(\d+)$/;
		my ($n)    = grep { $ways[$_]->port == ($port || 0) } 0 .. $#ways;
		my $own    = defined $n ? $zk->server($n + 1) : undef;
		if ($own && $own->mode(0.5) ne 'leader')
		{
			$zk->isolate($own);
			$self->_later($event->{duration}, sub { $zk->rejoin($own) });
			return 1;
		}
		return 0 if now > $until;
		$ways[$n]->drop if $own;
		nap(0.1);
	}
}

# All of the data are lost. No session is believed in any more when there are others: see What remains in
# doc/guarantees.md. Tokens rise all the same.
sub _wipe($self, $event, $)
{
	my $zk = $self->{zookeeper};
	return 0 if grep { !$_->running } $zk->servers;
	$zk->kill9;
	$zk->wipe(epochs => 1);
	$self->_later($event->{duration}, sub { $_->start(wait => 0) foreach grep { !$_->running } $zk->servers });
	return 1;
}

sub _rolling_restart($self, $event, $) { $self->_restart_in_turn($self->{zookeeper}->servers); return 1; }

# The next server is stopped when the one before is back in the ensemble, as an administrator does it.
sub _restart_in_turn($self, $server, @next)
{
	$server->stop;
	$self->_later(0.5, sub { $server->start(wait => 0) unless $server->running });
	$self->_later(3.5, sub { $self->_await_return($server, @next) }) if @next;
	return;
}

sub _await_return($self, $server, @next)
{
	return if $self->{healing};
	return $self->_restart_in_turn(@next) if $server->running && $server->started && $server->mode(0.5) ne '';
	return $self->_later(0.2, sub { $self->_await_return($server, @next) });
}

1;
