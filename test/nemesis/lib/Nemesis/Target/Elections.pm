# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Target::Elections - one leader among the servers, as far as it can be proved

=head1 SYNOPSIS

  my $verdict = Nemesis::Target::Elections->judge(
      attempts => \@attempts, interventions => \@interventions, session_timeout => 4);
  print "$_->{kind}: $_->{text}\n" foreach @{ $verdict->{violations} };

=head1 WHAT IS CHECKED

The client is election_client.pl, which says what an attempt is. All three servers stand at each
path.

I<two leaders>: a client was told that its server leads, although it asked after another one had
been told so of a later term. Nobody can take such an answer back.

I<late commit>: what was written under a term was committed after somebody had been told of a later
one.

I<term of two>: two servers led in one term.

I<unexpected error>: an error that no fault accounts for.

An administrator who deletes a candidate's node, or closes its session, takes leadership from a
living server, which ZooKeeper tells that server later than the others. This excuses the
terms that it hit, as it excuses holders of locks (L<Nemesis::Checker>).

=cut

package Nemesis::Target::Elections;

use v5.36;

use parent 'Nemesis::Target';

# Cancelled, terminated, crashed, starting, no connection, no ZooKeeper, no worker, lost
my $expected_error = qr/^(?:57014|57P0[123]|08...|58030|40001|55000)$/;

my %elections = ('/nemesis/elections/latch' => 'curator_latch', '/nemesis/elections/support' => 'zookeeper');

sub paths { return sort keys %elections; }

sub server_conf
{
	return "zklock.elections = '" . join(', ', map { "$_=$elections{$_}" } sort keys %elections) . q(');
}

sub users
{
	return q{SELECT pid, CASE WHEN state = 'active' THEN 'waiting' ELSE 'held' END FROM pg_stat_activity
		WHERE xact_start IS NOT NULL AND query ~ 'zk_is_leader|INSERT INTO attempts'};
}

# For each server and path a client that asks only, which is nothing to ZooKeeper, and one that works,
# but on the quiet server.
sub clients($self, $run, $)
{
	my @clients;
	foreach my $path ($self->paths)
	{
		my ($kind) = $path =~ m{([^/]+)$};
		push @clients, map {
			{ $run->sql_client($_, "-asks-$kind"), script => 'election_client.pl', path => $path, works => 0 }
		} $run->servers;
		push @clients, map {
			{ $run->sql_client($_, "-leads-$kind"), script => 'election_client.pl', path => $path, works => 1, resigns => 1 }
		} $run->busy_server(0), $run->busy_server(1);
	}
	return @clients;
}

sub is_under_way($self, @attempts) { return grep { defined $_->{token} } @attempts; }

sub kinds { return ('two leaders', 'late commit', 'term of two', 'unexpected error'); }

# The servers stand for as long as they are told to.
sub emptied($self, $run)
{
	if (!$self->{withdrawn}++)
	{
		$_->set_conf('zklock.elections' => '') foreach $run->servers;
	}
	return $self->paths;
}

sub describe($self, $run)
{
	return join '', map {
		my $server = $_;
		$server->name . ': ' . (eval { $server->value('SELECT string_agg(e::text, chr(10)) FROM zk_elections e') } // $@) . "\n"
	} $run->servers;
}

# Did an administrator take leadership in a term away from its server, by some time?
sub _is_excused($arg, $term, $time)
{
	foreach my $did (@{ $arg->{interventions} || [] })
	{
		next if $did->{from} > $time;
		return 1 if $did->{czxids} && grep { $_ == $term->{term} >> 12 } @{ $did->{czxids} };
		next if $did->{czxids};
		next if defined $did->{path} && $did->{path} ne $term->{path};
		next if defined $did->{server} && $did->{server} ne $term->{server};
		return 1 if !defined $did->{to} || $did->{to} + $arg->{session_timeout} > $term->{first};
	}
	return 0;
}

sub _describe($attempt)
{
	return sprintf('%s (server %s, %s, term %s) %.4f..%.4f', @$attempt{qw(id server outcome token asked)},
		$attempt->{commit_at} // $attempt->{until});
}

# The terms of one path: what was answered and committed in each. Appends to the violations.
sub _judge_path($arg, $violations, @attempts)
{
	my %terms;
	foreach my $attempt (sort { $a->{granted} <=> $b->{granted} } @attempts)
	{
		my $term = $terms{ $attempt->{token} } ||= {
			term => $attempt->{token}, path => $attempt->{path}, server => $attempt->{server},
			first => $attempt->{granted}, attempt => $attempt, attempts => [] };
		push @{ $term->{attempts} }, $attempt;
		push @$violations, { kind => 'term of two', text => _describe($term->{attempt}) . ' and ' . _describe($attempt) }
		  if $attempt->{server} ne $term->{server};
	}

	# From the last term to the first: when had anybody been told of a later one?
	my $later;
	foreach my $term (sort { $b->{term} <=> $a->{term} } values %terms)
	{
		foreach my $attempt ($later ? @{ $term->{attempts} } : ())
		{
			my $kind = $attempt->{asked} > $later->{first} ? 'two leaders'
			  : ($attempt->{commit_at} // 0) > $later->{first} ? 'late commit' : next;
			next if _is_excused($arg, $term, $later->{first});
			push @$violations, { kind => $kind, text => "$attempt->{path}: " . _describe($attempt) . ' after ' . _describe($later->{attempt}) };
			last;
		}
		$later = $term if !$later || $term->{first} < $later->{first};
	}
	return scalar keys %terms;
}

sub judge($class, %arg)
{
	my (@violations, %count, %by_path);
	foreach my $attempt (@{ $arg{attempts} })
	{
		$count{ $attempt->{outcome} }++;
		push @violations, { kind => 'unexpected error', text => "$attempt->{id}: $attempt->{error}" }
		  if defined $attempt->{sqlstate} && $attempt->{sqlstate} !~ $expected_error;
		push @{ $by_path{ $attempt->{path} } }, $attempt if defined $attempt->{token};
	}
	$count{terms} += _judge_path(\%arg, \@violations, @{ $by_path{$_} }) foreach sort keys %by_path;
	return { violations => \@violations, counts => \%count };
}

sub check($self, $run, @attempts)
{
	my @settled = $self->settle($run, grep { defined $_->{granted} && $_->{outcome} ne 'asked' } @attempts);
	my $verdict = $self->judge(attempts => \@attempts, interventions => $run->interventions, session_timeout => $run->session_timeout);
	my %count   = %{ $verdict->{counts} };
	return {
		violations => [ @settled, @{ $verdict->{violations} } ],
		activity   => [ $count{committed} || 0, $run->client_count, 'transactions of leaders have committed' ],
		summary    => [
			[ 'terms of leaders', $count{terms} || 0 ],
			[ '  proofs of leadership', $count{asked} || 0 ],
			[ '  transactions committed', $count{committed} || 0 ],
			[ '  refused', $count{refused} || 0 ] ] };
}

1;
