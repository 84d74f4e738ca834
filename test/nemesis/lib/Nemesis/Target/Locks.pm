# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Target::Locks - exclusive locks, of SQL clients and of Java services with Curator

A client takes a lock on one of the paths again and again, or reserves the path, works in Nemesis::Register under it, and
writes into its history what it believed: see Nemesis::History. It holds a lock for a moment on quick
paths, for seconds on slow ones. One that C<keeps> a path takes only that one, for longer than a session
may be silent, and relies on the lease alone.

A Java service with Curator's InterProcessMutex has no lease and no commit guard. Before it lets go of a
lock it has ZooKeeper commit that its node is still there; if it is not, its work does not count: the
attempt is "lost".

=head1 HOW IT IS JUDGED

A client believes the lock function until it is told otherwise. It holds a lock from C<granted> until C<until>,
and if it committed, until its commit record was written. An attempt is I<disowned> if its client was told that
nothing came of it: refused, lost, aborted. That is what the guard is for: its overlaps are counted as C<overlaps>;
C<latency> is the longest time from the grant to another until the disowned was told, in milliseconds. It may have
been granted late, so its token may be any. C<writes>, if given, are those of Nemesis::Register.

An intervention excuses the holder it hit, counted as C<overlaps_by_intervention>; but with C<commit_guard>
'quorum' only if it was not over when the holder asked to commit: the guard must see what was there then.

All is one pass over sorted lists; the holds that have not ended are few.

=cut

package Nemesis::Target::Locks;

use v5.36;

use parent 'Nemesis::Target';

use List::Util qw(max);
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

# A reservation whose client has not heard of it ends by itself.
my %asks = (
	session => 'SELECT zk_lock(?, ?)', transaction => 'SELECT zk_xact_lock(?, ?)',
	reservation => q{SELECT coalesce(zk_reserve(?, '15s', ?), 0)});

# What follows the grant. Each step may fail; until tells how far it came.
sub _work($client, $attempt, $pause)
{
	$attempt->{token} //= $client->run('SELECT zk_fencing_token(?)', $attempt->{path}) // return 'aborted';
	$client->begin || return 'aborted' if $attempt->{scope} ne 'transaction';
	$client->run('SELECT zk_rely(?, ?) IS NOT NULL', @$attempt{qw(path token)}) || return 'aborted' if $attempt->{scope} eq 'reservation';
	$client->run('INSERT INTO attempts VALUES (?)', $attempt->{id}) || return 'aborted';
	_write($client, $attempt, $pause);
	return $client->commit;
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
	my %attempt = ($client->begin_attempt, path => $path, scope => one_of(qw(session session transaction transaction reservation)));
	my $keeps   = $client->config('keeps');
	$attempt{guard} = $keeps ? 'lease' : one_of(qw(lease lease quorum));
	$client->run("SET zklock.commit_guard = $attempt{guard}");
	$client->run('SET zklock.on_lock_loss = ' . ($keeps ? 'abort' : one_of(qw(abort cancel terminate))));
	$client->begin if $attempt{scope} eq 'transaction';
	$attempt{asked} = now;
	my $got = $client->run($asks{ $attempt{scope} }, $path, $timeout);
	$attempt{granted} = $attempt{until} = now if $got;
	$attempt{token} = $got if $got && $attempt{scope} eq 'reservation';
	$attempt{outcome} = $got ? _work($client, \%attempt, $pause) : defined $got ? 'timeout' : 'failed';
	$attempt{outcome} = 'refused' if ($client->error->{sqlstate} || '') eq '40001';
	$client->end_attempt(\%attempt, 'SELECT zk_unlock_all()',
		$attempt{scope} eq 'reservation' && $got ? "SELECT zk_unreserve('$path', $got)" : ());
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

sub kinds { return ('unguarded commit', 'exclusion', 'token order', 'fenced register', 'lost update'); }

sub evidence($self, $run) { return (writes => [ Nemesis::Register->writes($run->register) ]); }
sub settles($self, $attempt) { return 1; }
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

# ---- the judgement

# Whoever is told this knows that its work does not count.
my %disowned = map { $_ => 1 } qw(refused lost aborted);

sub judge($class, %arg)
{
	my @granted = grep { defined $_->{granted} } @{ $arg{attempts} };
	my %by_path = Nemesis::Target::by_path(@granted);
	my $self    = bless {
		violations    => [ Nemesis::Target::unexpected_errors($arg{attempts}, '40001') ],
		counts        => { latency => 0, acquisitions => scalar @granted, Nemesis::Target::outcomes(@{ $arg{attempts} }) },
		attempts      => { map { $_->{id} => $_ } @{ $arg{attempts} } },
		interventions => $arg{interventions} || [],
		session_timeout => $arg{session_timeout} || 0,
	}, ref $class || $class;

	foreach my $path (sort keys %by_path)
	{
		my @holds = sort { $a->{granted} <=> $b->{granted} } @{ $by_path{$path} };
		$self->_check_exclusion(@holds);
		$self->_check_tokens(@holds);
	}
	$self->_check_writes(@{ $arg{writes} || [] });
	return $self;
}

sub _violation($self, $kind, $text, @attempts)
{
	push @{ $self->{violations} }, { kind => $kind, text => $text, attempts => [@attempts] };
	return;
}

sub _end($hold)
{
	my ($until, $commit) = @{$hold}{qw(until commit_at)};
	return defined $commit && $commit > $until ? $commit : $until;
}

sub _hit_by_intervention($self, $hold)
{
	my @possible = grep { ($hold->{guard} // '') ne 'quorum' || !defined $_->{to} || $_->{to} >= $hold->{until} } @{ $self->{interventions} };
	return Nemesis::Target::is_excused({ %$self, interventions => \@possible }, $hold, $hold->{asked}, _end($hold));
}

# "a1.7 (server a, refused) 12.301..12.480"
sub _describe($hold)
{
	my $where = $hold->{kind} eq 'sql' ? "server $hold->{server}, $hold->{scope} level" . ($hold->{guard} ? ", guard $hold->{guard}" : '') : 'Curator';
	return sprintf('%s (%s, %s, token %s) %.4f..%.4f%s',
		$hold->{id}, $where, $hold->{outcome},
		defined $hold->{token} ? $hold->{token} : 'unknown', $hold->{granted}, $hold->{until},
		defined $hold->{commit_at} ? sprintf(', committed %.4f', $hold->{commit_at}) : '');
}

sub _check_exclusion($self, @holds)
{
	my @current;
	foreach my $new (@holds)
	{
		@current = grep { _end($_) > $new->{granted} } @current;
		foreach my $old (@current)
		{
			if ($disowned{ $old->{outcome} } || $disowned{ $new->{outcome} })
			{
				$self->{counts}{overlaps}++;
				my $latency = int(1000 * ($old->{told} - $new->{granted}) + 0.5);
				$self->{counts}{latency} = max($self->{counts}{latency}, $latency) if $disowned{ $old->{outcome} };
			}
			elsif ($self->_hit_by_intervention($old) || $self->_hit_by_intervention($new))
			{
				$self->{counts}{overlaps_by_intervention}++;
			}
			else
			{
				$self->_violation_of_exclusion($old, $new);
			}
		}
		push @current, $new;
	}
	return;
}

# One hold may run into many.
sub _violation_of_exclusion($self, $old, $new)
{
	my $violation = $self->{exclusion}{ $old->{id} };
	if ($violation)
	{
		my $others = ++$violation->{others};
		$violation->{text} =~ s/(?:, and others: \d+)?$/, and others: $others/;
		return;
	}
	my $sql = grep { $_->{kind} eq 'sql' } $old, $new;
	$self->_violation(
		$sql ? 'unguarded commit' : 'exclusion',
		sprintf("%s: %s, and for %.4f s of it %s",
			$new->{path}, _describe($old), _end($old) - $new->{granted}, _describe($new)),
		$old, $new);
	$self->{exclusion}{ $old->{id} } = $self->{violations}[-1];
	return;
}

sub _check_tokens($self, @holds)
{
	my @ends = sort { $a->{until} <=> $b->{until} } grep { defined $_->{token} } @holds;
	my ($highest, %granted);
	foreach my $hold (grep { defined $_->{token} } @holds)
	{
		while (@ends && $ends[0]{until} < $hold->{granted})
		{
			my $ended = shift @ends;
			$highest = $ended if !$highest || $ended->{token} > $highest->{token};
		}
		my $twice = $granted{ $hold->{token} };
		$granted{ $hold->{token} } = $hold;
		if ($twice)
		{
			$self->_violation('token order',
				"$hold->{path}: one token for " . _describe($twice) . ' and ' . _describe($hold), $twice, $hold);
		}
		elsif ($highest && $highest->{token} >= $hold->{token}
			&& !$disowned{ $hold->{outcome} }
			&& !$self->_hit_by_intervention($hold))
		{
			$self->_violation('token order',
				"$hold->{path}: " . _describe($hold) . ' after ' . _describe($highest), $highest, $hold);
		}
	}
	return;
}

sub _excused($self, $id)
{
	my $attempt = $self->{attempts}{$id};
	# It wrote, and did not live to report: nobody was told that its work counts.
	return 1 unless $attempt;
	return $disowned{ $attempt->{outcome} } || $self->_hit_by_intervention($attempt);
}

sub _check_writes($self, @writes)
{
	my (%value, %token, %writer);
	foreach my $write (@writes)
	{
		my $register = "$write->{path} $write->{fenced}";
		my $text = "$write->{path}: $write->{attempt} wrote $write->{value} with token $write->{token}";
		my $last = $writer{$register};
		my $lost = ($value{$register} || 0) != $write->{seen};
		$self->{counts}{ $write->{fenced} ? 'fenced_writes' : 'unfenced_writes' }++;
		if ($write->{fenced})
		{
			$self->_violation('fenced register', "$text after token $token{$register}", $last, $write)
			  if $write->{token} < ($token{$register} || 0);
			$self->_violation('fenced register', "$text over $value{$register} by $last->{attempt}", $last, $write)
			  if $lost;
		}
		elsif ($lost)
		{
			$self->{counts}{lost_unfenced_updates}++;
			$self->_violation('lost update', "$text over $value{$register} by $last->{attempt}", $last, $write)
			  unless $self->_excused($last->{attempt}) || $self->_excused($write->{attempt});
		}
		$value{$register}  = $write->{value};
		$token{$register}  = $write->{token};
		$writer{$register} = $write;
	}
	return;
}

1;
