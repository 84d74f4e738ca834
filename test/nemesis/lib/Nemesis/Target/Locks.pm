# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Target::Locks - exclusive locks, of SQL clients and of Java services with Curator

A client takes a lock on one of the paths again and again, works in Nemesis::Register under it, and
writes into its history what it believed: see Nemesis::History. It holds a lock for a moment on quick
paths, for seconds on slow ones. One that C<keeps> a path takes only that one, for longer than a session
may be silent, and relies on the lease alone.

A Java service with Curator's InterProcessMutex has no lease and no commit guard. Before it lets go of a
lock it has ZooKeeper commit that its node is still there; if it is not, its work does not count: the
attempt is "lost". Nemesis::Checker judges.

=cut

package Nemesis::Target::Locks;

use v5.36;

use parent 'Nemesis::Target';

use Nemesis::Checker;
use Nemesis::Client qw(between one_of);
use Nemesis::History qw(now);
use Nemesis::Register;
use Zklock::Util qw(nap);

my @quick = map { "/nemesis/quick$_" } 1 .. 4;
my @slow  = map { "/nemesis/slow$_" } 1 .. 3;

sub share { return 6; }
sub paths { return (@quick, @slow); }
sub users { return q{SELECT pid, state FROM zk_locks WHERE state IN ('held', 'waiting')}; }
sub prepare($self, $run) { Nemesis::Register->create($run->register, $self->paths); return; }

# The quiet server has a single client, which holds its lock for long: a connection with writes
# on their way shows soon that the ensemble is away, one where a lock is held does not.
sub clients($self, $run, $count)
{
	my @sql = map {
		{ $run->sql_client($_ == 1 ? $run->quiet_server : $run->busy_server($_), $_), keeps => $slow[ $_ - 1 ] }
	} 1 .. $count;
	my @java = map {
		{
			name            => "curator$_",
			class           => 'CuratorClient',
			hosts           => $run->zookeeper->connect_string,
			session_timeout => 1000 * $run->session_timeout,
			pid_file        => $run->directory . "/curator$_.pid"
		}
	} 1 .. 2;
	return (@sql, @java);
}

# What follows the grant. Each step may fail; until tells how far it came.
sub _work($client, $attempt, $pause)
{
	$attempt->{token} = $client->run('SELECT zk_fencing_token(?)', $attempt->{path}) // return 'aborted';
	$client->begin || return 'aborted' if $attempt->{scope} eq 'session';
	$client->run('INSERT INTO attempts VALUES (?)', $attempt->{id}) || return 'aborted';
	_write($client, $attempt, $pause);
	$client->commit && return 'committed';
	return $client->error->{fatal} ? 'unknown' : 'aborted';
}

# Believing that it holds the lock
sub _write($client, $attempt, $pause)
{
	my @lock = @$attempt{qw(path token)};
	$attempt->{until} = now;
	my $seen = $client->register->read(@lock);
	nap($pause);
	$client->register->write(@lock, $attempt->{id}, $seen);
	$attempt->{until} = now;
	return;
}

# Returns whether it has committed.
sub _attempt($client, $path, $pause, $timeout)
{
	my %attempt = ($client->begin_attempt, path => $path, scope => one_of(qw(session transaction)));
	my $keeps   = $client->config('keeps');
	$attempt{guard} = $keeps ? 'lease' : one_of(qw(lease lease quorum));
	$client->run("SET zklock.commit_guard = $attempt{guard}");
	$client->run('SET zklock.on_lock_loss = ' . ($keeps ? 'abort' : one_of(qw(abort cancel terminate))));
	$client->begin if $attempt{scope} eq 'transaction';
	$attempt{asked} = now;
	my $got = $client->run(
		$attempt{scope} eq 'session' ? 'SELECT zk_lock(?, ?)' : 'SELECT zk_xact_lock(?, ?)',
		$path, $timeout);
	$attempt{granted} = $attempt{until} = now if $got;
	$attempt{outcome} = $got ? _work($client, \%attempt, $pause) : defined $got ? 'timeout' : 'failed';
	$attempt{outcome} = 'refused' if ($client->error->{sqlstate} || '') eq '40001';
	$client->end_attempt(\%attempt, 'SELECT zk_unlock_all()');
	return $attempt{outcome} eq 'committed';
}

# As a Java service. Returns whether it counts.
sub _curator_attempt($client, $path, $pause, $timeout)
{
	my $java    = $client->java;
	my %attempt = ($client->begin_attempt, path => $path, asked => now);
	my $got     = eval { $java->acquire('lock', $path, $timeout) };
	if ($got)
	{
		$attempt{granted} = $attempt{until} = now;
		my $node = eval { $java->node('lock') };
		if ($node)
		{
			$attempt{token} = $node->[1] << 12;
			_write($client, \%attempt, $pause);
			$attempt{outcome} = 'committed' if eval { $java->prove('lock') };
		}
		# Whoever has no answer must take the lock for lost.
		$attempt{outcome} ||= 'lost';
		$attempt{error} = $@ if $@;
		eval { $java->release('lock') };
	}
	else
	{
		$attempt{outcome} = defined $got ? 'timeout' : 'failed';
		$attempt{error} = $@ unless defined $got;
	}

	# Curator may leave a node behind when it fails: that goes with its session.
	$client->connect if $attempt{outcome} eq 'failed';
	$client->end_attempt(\%attempt);
	return $attempt{outcome} eq 'committed';
}

sub turn($self, $client)
{
	my $keeps = $client->config('keeps');
	if ($client->kind eq 'curator')
	{
		my $slow = rand() < 0.1;
		_curator_attempt($client, $slow ? one_of(@slow) : one_of(@quick), $slow ? between(0.3, 2) : between(0.005, 0.06), 10_000);
		nap(between(0.1, 1.0)) unless $client->last_lap;
		return;
	}
	if ($keeps)
	{
		_attempt($client, $keeps, between(4.5, 7), '20s');
	}
	elsif (rand() < 0.04)
	{
		_attempt($client, one_of(@slow), between(0.3, 1.5), one_of('1s', '10s', '20s'));
	}
	else
	{
		my $path = one_of(@quick);
		_attempt($client, $path, between(0.005, 0.06), one_of('0', '1s', '3s', '10s', '20s', '20s')) foreach 1 .. one_of(1, 1, 3);
	}
	nap(between(0.05, 0.6)) unless $client->last_lap;
	return;
}

sub last_turn($self, $client)
{
	my ($attempt, $no_limit) = $client->kind eq 'curator' ? (\&_curator_attempt, -1) : (\&_attempt, undef);
	foreach my $path (@quick, @slow)
	{
		nap(0.1) until $attempt->($client, $path, 0.01, $no_limit);
	}
	return;
}

sub is_under_way($self, @attempts) { return scalar grep { defined $_->{granted} } @attempts; }

sub describe($self, $run)
{
	return join('', map { $_->describe_locks } $run->servers)
	  . join('', map { "$_: @{[ $run->zookeeper->children($_) ]}\n" } $self->paths);
}

sub kinds
{
	return (
		'unguarded commit', 'exclusion', 'token order', 'fenced register', 'lost update',
		'unexpected error', 'false refusal', 'lost commit');
}

sub evidence($self, $run) { return (writes => [ Nemesis::Register->writes($run->register) ]); }
sub settles($self, $attempt) { return 1; }
sub judge($self, %history) { return Nemesis::Checker->check(%history); }
sub activity { return (acquisitions => 'locks were taken'); }

sub summary
{
	return (
		[ 'acquisitions', 'acquisitions' ],
		[ '  committed', 'committed' ],
		[ '  aborted for other reasons', 'aborted' ],
		[ 'losses noticed', 'refused', 'lost' ],
		[ '  guarded commits refused', 'refused' ],
		[ 'not granted in time, or failed', 'timeout', 'failed' ],
		[ 'believed holds that overlapped', 'overlaps' ],
		[ '  by intervention', 'overlaps_by_intervention' ],
		[ '  longest detection latency, ms', 'latency' ],
		[ 'writes accepted: unfenced', 'unfenced_writes' ],
		[ '  of which lost an update', 'lost_unfenced_updates' ],
		[ 'writes accepted: fenced', 'fenced_writes' ]);
}

1;
