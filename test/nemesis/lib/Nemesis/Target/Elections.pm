# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Target::Elections - one leader among the servers, as far as it can be proved

=head1 AN ATTEMPT

All three servers stand at each path. A client asks again and again whether its server leads, and if so
works in that transaction. One that does not work (C<works>) only asks, so no commit keeps it from asking
again; one that C<resigns> may have its server resign.

An attempt has path, asked (before the question), granted (after it was answered with true, and the term
was told; else missing), token (the term), until (before COMMIT), and an outcome: 'no' (it does not
lead), 'asked' (it does, and that is all), or that of an attempt to lock.

An administrator who takes leadership from a living server excuses the terms that he hit, as he excuses
holders of locks (L<Nemesis::Target>).

=cut

package Nemesis::Target::Elections;

use v5.36;

use parent 'Nemesis::Target';

use Nemesis::Client qw(between);
use Nemesis::History qw(now);
use Zklock::Util qw(nap);

my %elections = ('/nemesis/elections/latch' => 'curator_latch', '/nemesis/elections/support' => 'zookeeper');

sub paths { return sort keys %elections; }
sub server_conf { return "zklock.elections = '" . join(', ', map { "$_=$elections{$_}" } sort keys %elections) . q('); }

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
			{ $run->sql_client($_, "-asks-$kind"), path => $path, works => 0 }
		} $run->servers;
		push @clients, map {
			{ $run->sql_client($_, "-leads-$kind"), path => $path, works => 1, resigns => 1 }
		} $run->busy_server(0), $run->busy_server(1);
	}
	return @clients;
}

# Of a statement before the commit
sub _outcome_of_error($client) { return $client->error->{sqlstate} eq '40001' ? 'refused' : 'aborted'; }

sub _work($client, $attempt)
{
	$attempt->{until} = $attempt->{granted};
	$attempt->{token} = $client->run('SELECT zk_fencing_token(?)', $attempt->{path}) // return _outcome_of_error($client);
	# The term may be a later one than the question was answered in.
	$attempt->{until} = $attempt->{granted} = now;
	return $client->commit =~ s/committed/asked/r =~ s/unknown/aborted/r if !$client->config('works');
	$client->run('INSERT INTO attempts VALUES (?)', $attempt->{id}) or return _outcome_of_error($client);
	nap(between(0, rand() < 0.03 ? 2 : 0.03));
	# What was said last is that it leads still, or what the guard says.
	$attempt->{until} = now;
	return $client->commit;
}

sub _attempt($client)
{
	my $path    = $client->config('path');
	my %attempt = ($client->begin_attempt, path => $path, guard => 'lease', scope => 'transaction', outcome => 'failed', asked => now);
	if ($client->begin)
	{
		$attempt{asked} = now;
		my $leads = $client->run('SELECT zk_is_leader(?) /* election */', $path);
		$attempt{granted} = now if $leads;
		$attempt{outcome} = $leads ? _work($client, \%attempt) : 'no' if defined $leads;
	}
	$client->end_attempt(\%attempt);
	return $attempt{outcome} ne 'no';
}

# Something is asked, and what it comes to is not looked at.
sub _ask($client, $sql)
{
	my $path    = $client->config('path');
	my %attempt = ($client->begin_attempt, path => $path, asked => now, outcome => 'move');
	my $answer  = $client->run($sql, $path);
	my $good    = defined $answer && !%{ $client->error };
	$client->end_attempt(\%attempt);
	return $good;
}

sub turn($self, $client)
{
	my $leads = _attempt($client);
	# Leadership moves on, or is waited for.
	_ask($client, $leads ? 'SELECT zk_resign(?) /* election */' : q{SELECT zk_await_leadership(?, '1 s') /* election */})
	  if $client->config('resigns') && rand() < 0.03;
	nap(between(0, $client->config('works') ? 0.03 : 0.1)) unless $client->last_lap;
	return;
}

# When all is well somebody leads, and everybody can tell who.
sub last_turn($self, $client)
{
	nap(0.1) until _ask($client, 'SELECT server FROM zk_leader(?)');
	_attempt($client);
	return;
}

sub is_under_way($self, @attempts) { return grep { defined $_->{token} } @attempts; }
sub kinds { return ('two leaders', 'late commit', 'term of two'); }

# The servers stand for as long as they are told to.
sub emptied($self, $run)
{
	$_->set_conf('zklock.elections' => '') foreach $run->servers;
	return $self->paths;
}

sub describe($self, $run)
{
	return join '', map {
		my $server = $_;
		$server->name . ': ' . (eval { $server->value('SELECT string_agg(e::text, chr(10)) FROM zk_elections e') } // $@) . "\n"
	} $run->servers;
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
			token => $attempt->{token}, path => $attempt->{path}, server => $attempt->{server},
			first => $attempt->{granted}, attempt => $attempt, attempts => [] };
		push @{ $term->{attempts} }, $attempt;
		push @$violations, { kind => 'term of two', text => _describe($term->{attempt}) . ' and ' . _describe($attempt) }
		  if $attempt->{server} ne $term->{server};
	}

	# From the last term to the first: when had anybody been told of a later one?
	my $later;
	foreach my $term (sort { $b->{token} <=> $a->{token} } values %terms)
	{
		foreach my $attempt ($later ? @{ $term->{attempts} } : ())
		{
			my $kind = $attempt->{asked} > $later->{first} ? 'two leaders'
			  : ($attempt->{commit_at} // 0) > $later->{first} ? 'late commit' : next;
			next if Nemesis::Target::is_excused($arg, $term, $term->{first}, $later->{first});
			push @$violations, { kind => $kind, text => "$attempt->{path}: " . _describe($attempt) . ' after ' . _describe($later->{attempt}) };
			last;
		}
		$later = $term if !$later || $term->{first} < $later->{first};
	}
	return scalar keys %terms;
}

sub settles($self, $attempt) { return defined $attempt->{granted} && $attempt->{outcome} ne 'asked'; }

sub judge($self, %history)
{
	my @violations = Nemesis::Target::unexpected_errors($history{attempts}, '40001');
	my %count      = Nemesis::Target::outcomes(@{ $history{attempts} });
	my %by_path    = Nemesis::Target::by_path(grep { defined $_->{token} } @{ $history{attempts} });
	$count{terms} += _judge_path(\%history, \@violations, @{ $by_path{$_} }) foreach sort keys %by_path;
	return { violations => \@violations, counts => \%count };
}

sub activity { return (committed => 'transactions of leaders have committed'); }

sub summary
{
	return (
		[ 'terms of leaders', 'terms' ], [ '  proofs of leadership', 'asked' ],
		[ '  transactions committed', 'committed' ], [ '  refused', 'refused' ]);
}

1;
