# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Checker - finds what must not be in a history

=head1 SYNOPSIS

  my $verdict = Nemesis::Checker->check(
      attempts      => \@attempts,        # see Nemesis::History
      writes        => \@writes,          # see Nemesis::Register
      interventions => \@interventions,
      session_timeout => 4);              # seconds
  print "$_->{kind}: $_->{text}\n" foreach @{ $verdict->{violations} };
  print "$_: $verdict->{counts}{$_}\n" foreach sort keys %{ $verdict->{counts} };

=head1 WHAT IS CHECKED

README.md of the fault run has the kinds of violations. A client believes the lock function until it is told
otherwise. It holds a lock from C<granted> until C<until>, and if it committed, until its commit record was
written. An attempt is I<disowned> if its client was told that nothing came of it: refused, lost, aborted. That is
what the guard is for: its overlaps are counted as C<overlaps>; C<latency> is the longest time from the grant to
another until the disowned was told, in milliseconds. It may have been granted late, so its token may be any.

An intervention is what an administrator may do, but takes a lock from a living session:
its node is deleted, or its session closed. No lease foresees that, and ZooKeeper tells
the holder later than it grants the lock to others. So it excuses the holder it hit, counted
as C<overlaps_by_intervention>; but with C<commit_guard> 'quorum' only if it was not over
when the holder asked to commit: the guard must see what was there then. A hash:

  from, to   when; no to: it was not seen to end
  path, czxids   of the nodes deleted; without czxids, any
  server         or: the database server whose session was closed. It may hear of it a
                 session timeout later, and hand locks on among its own until then

All is one pass over sorted lists; the holds that have not ended are few.

=cut

package Nemesis::Checker;

use v5.36;

use List::Util qw(max);

# Whoever is told this knows that its work does not count.
my %disowned = map { $_ => 1 } qw(refused lost aborted);

sub check($class, %arg)
{
	my $self = bless {
		violations    => [ unexpected_errors($arg{attempts}, '40001') ],
		counts        => { latency => 0 },
		attempts      => { map { $_->{id} => $_ } @{ $arg{attempts} } },
		interventions => $arg{interventions} || [],
		session_timeout => $arg{session_timeout} || 0,
	}, $class;

	my %by_path;
	foreach my $attempt (@{ $arg{attempts} })
	{
		$self->{counts}{ $attempt->{outcome} }++;
		next unless defined $attempt->{granted};
		$self->{counts}{acquisitions}++;
		push @{ $by_path{ $attempt->{path} } }, $attempt;
	}
	foreach my $path (sort keys %by_path)
	{
		my @holds = sort { $a->{granted} <=> $b->{granted} } @{ $by_path{$path} };
		$self->_check_exclusion(@holds);
		$self->_check_tokens(@holds);
	}
	$self->_check_writes(@{ $arg{writes} || [] });
	return $self;
}

# Violations: errors that no fault accounts for. Any statement may be cancelled, terminated, crash with its server,
# find that starting, no connection, no ZooKeeper or no worker; what else may happen to some is "more".
sub unexpected_errors($attempts, @more)
{
	my $expected = join '|', qw(57014 57P0[123] 08... 58030 55000), @more;
	return map { { kind => 'unexpected error', text => "$_->{id}: $_->{error}" } }
	  grep { defined $_->{sqlstate} && $_->{sqlstate} !~ /^(?:$expected)$/ } @$attempts;
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

sub _hit_by_intervention($self, $hold)
{
	my @possible = grep { ($hold->{guard} // '') ne 'quorum' || !defined $_->{to} || $_->{to} >= $hold->{until} } @{ $self->{interventions} };
	return is_excused({ %$self, interventions => \@possible }, $hold, $hold->{asked}, _end($hold));
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
