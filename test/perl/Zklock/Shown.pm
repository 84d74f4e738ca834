# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Shown - what zklock shows on a server, and how to wait for it

=head1 METHODS

Those of a Zklock::Server that look at zk_session and zk_locks:

  zk_session, session_id, worker_pid
                       the row of that view, as a hash; two columns of it
  wait_session($state) until zk_session.state is this; default 'connected', with a lease that is
                       not what is left of one from before an outage, about to lapse
  wait_renewed         until a heartbeat that was sent from now on has renewed the lease
  cut_off($proxy), reconnect($proxy)
                       cuts or heals the proxy, and returns when the session is connecting or
                       connected
  start_connected, restart_connected
  session_file         where it remembers its ZooKeeper session for after a crash
  worker_effort        how often the threads of the worker have waited for something, and the processor time
                       that they have used, in ticks of 10 ms; it grows
  restart_worker       terminates it, and returns when the next one runs; wait_session tells
                       when that is connected
  wait_new_worker($pid)
                       until another one runs than this
  reconfigure(%settings)
                       sets them, terminates the worker, and returns when the next one has
                       taken them up and is connected
  worker_away          a test: terminates the worker and keeps it away, since a postmaster that
                       is stopped starts no new one; sessions that exist go on. Returns its pid
  worker_back($pid)    a test: the next worker comes, which is another one
  locks([$where])      rows of zk_locks, as a list of hashes
  lock_count([$where])
  wait_row($what, $condition [, $path [, $seconds]])
                       until zk_locks shows such a contender; $what is a session or a pid.
                       Returns the row
  wait_lock($what, $state, ...), wait_waiting, wait_holder($what [, $path])
                       the same, in this state
  wait_queued($what [, $path])
                       waiting, with a node that has its number: what other servers
                       do from now on comes behind it
  settle               until the server has heard of all that has happened in ZooKeeper and
                       been asked for in other sessions; uses a lock below /t/barrier
  wait_event($session or $pid, 'lock')
                       until pg_stat_activity shows that it waits for a lock, or, with 'guard', for
                       the proof before COMMIT, or, with 'unlock', until what it has released is free;
                       or for an event of PostgreSQL's, such as 'SyncRep'
  lose($zk, $session, $path [, $folder])
                       deletes all nodes there, and returns when the session has lost the path
  expire_session($zk)  ends the server's ZooKeeper session from outside
  describe_locks       zk_locks and zk_session as text, for messages

C<$server-E<gt>one_node($zk, $path, $name)> is one TAP test: the path has one node in
ZooKeeper, which is this server's and the one that zk_locks names as held.

C<Zklock::Server-E<gt>assert_clean($zk, [ @servers ], @paths)>, or
C<$server-E<gt>assert_clean($zk, @paths)>, is one TAP test: no row in zk_locks on any of
the servers, no child under any of the paths, or, if none is given, no ephemeral node anywhere
and no receipt, no watch in ZooKeeper; it waits for that to become true and tells what there is if
it does not. Close foreign contenders before.

=cut

package Zklock::Shown;

use v5.36;

use Carp;
use List::Util qw(sum0);
use Test::More ();
use Zklock::Util qw(freeze thaw wait_until);

sub locks($self, $where = 'true') { return $self->_hashes("SELECT * FROM zk_locks WHERE $where"); }
sub lock_count($self, $where = 'true') { return $self->value("SELECT count(*) FROM zk_locks WHERE $where"); }
sub zk_session($self) { return ($self->_hashes('SELECT * FROM zk_session'))[0]; }
sub session_file($self) { return $self->data_dir . '/pg_stat_tmp/zklock.session'; }
sub session_id($self) { return $self->zk_session->{session_id}; }
sub worker_pid($self) { return $self->zk_session->{worker_pid}; }

# The time is exact, as the ticks that "stat" counts are not.
sub worker_effort($self)
{
	my @tasks = glob '/proc/' . $self->worker_pid . '/task/*' or die 'the worker has no threads';
	# A thread may end meanwhile.
	my $of = sub ($file, $what) { return sum0(map { (eval { PostgreSQL::Test::Utils::slurp_file("$_/$file") } // '') =~ $what } @tasks); };
	return ($of->('status', qr/^voluntary_ctxt_switches:\s+(\d+)/m), $of->('schedstat', qr/^(\d+)/) / 1e7);
}

# While a server restarts after a crash it takes no connections: that is no failure here.
# A lease of two and a half seconds is renewed in time, a shorter one if it was proved on
# this connection.
sub wait_session($self, $state = 'connected', $timeout = undef)
{
	my $last = '';
	wait_until
	{
		$last = eval {
			$self->value(
				"SELECT CASE
				   WHEN state <> 'connected' OR lease_remaining > least(negotiated_timeout / 2, '2.5 s')
				     OR lease_remaining > '0'
				       AND clock_timestamp() + lease_remaining > connected_since + 0.99 * negotiated_timeout
				   THEN state ELSE 'connected, with little lease' END FROM zk_session");
		};
		($last //= "($@)") eq $state;
	}
	sub { $self->name . ": zk_session.state to be '$state' (it is '$last')\n" . $self->describe_locks },
	  $timeout;
	return;
}

sub wait_renewed($self)
{
	my $since = $self->value('SELECT clock_timestamp()');
	return $self->wait_value("SELECT lease_remaining > '0'
		AND clock_timestamp() + lease_remaining > '$since'::timestamptz + negotiated_timeout FROM zk_session", 't');
}

sub cut_off($self, $proxy) { $proxy->cut; return $self->wait_session('connecting'); }
sub reconnect($self, $proxy) { $proxy->heal; return $self->wait_session; }

sub start_connected($self) { $self->start; return $self->wait_session; }
sub restart_connected($self) { $self->restart; return $self->wait_session; }

sub wait_new_worker($self, $old)
{
	return wait_until { ($self->worker_pid || $old) != $old } $self->name . ": another worker than $old";
}

sub reconfigure($self, %settings)
{
	my $old = $self->worker_pid;
	$self->set_conf(%settings);
	$self->value("SELECT pg_terminate_backend($old)");
	$self->wait_new_worker($old);
	$self->wait_session;
	return;
}

sub restart_worker($self)
{
	my $old = $self->worker_pid;
	$self->value("SELECT pg_terminate_backend($old)");
	return $self->wait_new_worker($old);
}

sub worker_away($self)
{
	$self->value('SELECT 1');    # the monitoring session must exist before
	my $worker = $self->worker_pid;
	freeze($self->postmaster_pid);
	Test::More::is($self->value("SELECT pg_terminate_backend($worker)"), 't', 'the worker is terminated');
	$self->wait_session('no worker');
	return $worker;
}

sub worker_back($self, $old)
{
	thaw($self->postmaster_pid);
	$self->wait_session;
	Test::More::isnt($self->worker_pid, $old, 'a new worker has started');
	return;
}

sub wait_row($self, $what, $condition, $path = undef, $timeout = undef)
{
	my $pid   = ref $what ? $what->pid : $what;
	my $where = "pid = $pid AND $condition" . (defined $path ? ' AND path = ' . Zklock::Server::_quote($path) : '');
	return wait_until { ($self->locks($where))[0] }
	sub { $self->name . ": a contender with $where\n" . $self->describe_locks }, $timeout;
}

sub wait_lock($self, $what, $state, @more) { return $self->wait_row($what, "state = '$state'", @more); }
sub wait_waiting($self, $what, $path = undef) { return $self->wait_lock($what, 'waiting', $path); }
sub wait_holder($self, $what, $path = undef) { return $self->wait_lock($what, 'held', $path); }

# Until its place among all others in ZooKeeper is settled as well. Whose turn it is at a semaphore
# waits for a permit next, and has no place there yet.
sub wait_queued($self, $what, $path = undef)
{
	return $self->wait_row($what, <<'END', $path);
state = 'waiting' AND node ~ '[0-9]{10}$' AND
(kind <> 'semaphore' OR node ~ '-lease-' OR blocked_by_pid IS NOT NULL OR blocked_by_node IS NOT NULL)
END
}

# Answers and watch events of one ZooKeeper session come in order. So a lock taken and
# released on another path proves that the server knows of all that happened before. It is a
# shared one: an exclusive one may be kept, and then asks ZooKeeper nothing.
sub settle($self)
{
	my $barrier = $self->{barrier} ||= $self->session(name => $self->name . '.barrier');
	croak $self->name . ': the barrier failed'
	  unless $barrier->query("SELECT zk_lock_shared('/t/barrier', '30s') AND zk_unlock_shared('/t/barrier')") eq 't';
	return;
}

sub describe_locks($self)
{
	my $text = '';
	foreach my $view (qw(zk_session zk_locks))
	{
		my $rows = eval { $self->value("SELECT row_to_json(v) FROM $view v") } // $@;
		$text .= $self->name . ".$view:\n" . $rows =~ s/^(?=.)/  /gmr . "\n";
	}
	return $text;
}

sub lose($self, $zk, $session, $path, $folder = undef)
{
	my $nodes = join '/', $path, $folder // ();
	$zk->shell->delete("$nodes/$_") foreach $zk->children($nodes);
	$self->wait_lock($session, 'lost', $path);
	return;
}

sub expire_session($self, $zk)
{
	my $session = $self->zk_session;
	# A worker that is quick enough to resume the session while it is being closed can end
	# up with a connection that the server has forgotten; that would only take time.
	freeze($session->{worker_pid});
	$zk->shell->expire_session($session->{session_id});
	thaw($session->{worker_pid});
	return;
}

my %wait_events =
  (lock => 'ZkLock', guard => 'ZkCommitGuard', unlock => 'ZkUnlock', element => 'ZkElement', call => 'ZkCall');

sub wait_event($self, $session, $what)
{
	my $from = 'FROM pg_stat_activity WHERE pid = ' . (ref $session ? $session->pid : $session);
	my $ours = $wait_events{$what} or return $self->wait_value("SELECT wait_event $from", $what);
	# Before release 17 extensions had no names for their events.
	my $shown = $self->value('SHOW server_version_num') >= 170000 ? "Extension|$ours"
	  : $what eq 'lock' ? 'Lock|userlock' : 'Extension|Extension';
	return $self->wait_value("SELECT wait_event_type, wait_event $from", $shown);
}

# A test.
sub one_node($self, $zk, $path, $name)
{
	my ($lock) = $self->locks("path = '$path' AND state = 'held'");
	return Test::More::is_deeply($zk->places($path),
		[ ($lock ? $lock->{node} : 'none') . ' ' . $self->session_id ], $name);
}

sub assert_clean($self, $zk, @paths)
{
	my @servers = ref $self ? ($self) : @{ shift @paths };
	my @remains;
	my $clean = eval {
		wait_until
		{
			@remains = map { $_->describe_locks } grep { $_->lock_count } @servers;
			foreach my $path (@paths ? @paths : '/zklock-receipts')
			{
				push @remains, map { "node $path/$_\n" } $zk->children($path);
			}
			push @remains, map { "ephemeral node $_\n" } $zk->ephemerals unless @paths;
			my $watches = $zk->watch_count;
			push @remains, "$watches watches; those on data:\n" . $zk->four_letter('wchp') if $watches;
			!@remains;
		}
		'nothing to be left behind', $ENV{ZKLOCK_CLEAN_TIMEOUT} || 20;
	};
	# A test may want a crash, but no assertion that fails (make test-assert).
	my @traps = map { $_->log_since(0) =~ /^(TRAP: .*\n)/mg } @servers;
	my ($name, $why) = ("nothing is left behind: @paths", join('', @remains, @traps) || $@);
	utf8::encode($_) foreach $name, $why;
	$clean &&= !@traps;
	Test::More::ok($clean, $name) or Test::More::diag($why);
	return $clean;
}

1;
