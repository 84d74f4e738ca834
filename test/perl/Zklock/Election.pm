# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Election - servers that stand at an election

=head1 SYNOPSIS

  my $election = Zklock::Election->new($zk, '/e/leader');
  $election->stand($a, $b);                        # the first of them leads, the others are ready
  $election->wait_state($server, 'elected');       # until zk_elections says so
  $election->wait_state($server, 'ready', '/e/other');

  $election->leads($server);                       # 't' or 'f', says zk_is_leader()
  $election->term($server);
  $election->work($session);           # a test: it is told that its server leads, and writes into work

  $election->watch($a, $b);            # from now on each asks zk_is_leader() all the time
  ...
  my %terms = $election->watched;      # ends that; a test: no two believed to lead at once,
                                       # and terms rise. The terms of each server, by name
  $election->led_once;                 # the same, and tests: each that was watched has led in one term
  $election->over($a, $b);             # they stand no more, and the test ends as with done_clean

A server that is watched must be able to create a table and a function, and is asked in a
session of its own. The intervals are those in which a server provably led: from the end of
the first true answer in a term to the beginning of the last.

=cut

package Zklock::Election;

use v5.36;

use Test::More ();
use Zklock::Test ();
use Zklock::Util qw(increasing overlaps);

sub new($class, $zk, $path) { return bless { zk => $zk, path => $path }, $class; }

sub wait_state($self, $server, $state, $path = undef)
{
	$path //= $self->{path};
	$server->wait_value("SELECT coalesce((SELECT state FROM zk_elections WHERE path = '$path'), 'none')", $state);
	return;
}

sub stand($self, @servers)
{
	foreach my $server (@servers)
	{
		$server->set_conf('zklock.elections' => $self->{path});
		$self->wait_state($server, $server == $servers[0] ? 'elected' : 'ready');
	}
	return;
}

sub leads($self, $server) { return $server->value("SELECT zk_is_leader('$self->{path}')"); }
sub term($self, $server) { return $server->value("SELECT zk_fencing_token('$self->{path}')"); }

sub work($self, $session)
{
	$session->query($_) foreach 'CREATE TABLE IF NOT EXISTS work (n int)', 'BEGIN';
	Test::More::is($session->query("SELECT zk_is_leader('$self->{path}')"), 't', 'a transaction is told that its server leads');
	$session->query('INSERT INTO work VALUES (1)');
	return;
}

sub over($self, @servers)
{
	$_->set_conf('zklock.elections' => '') foreach @servers;
	return Zklock::Test::done_clean($self->{zk}, @servers);
}

# What a server says of each moment at which it leads. The function reads only, so it commits whatever it has been told.
my $watch = q{
	DROP TABLE IF EXISTS watch_ends;
	CREATE TABLE watch_ends (end_it boolean);
	CREATE OR REPLACE FUNCTION watch_leader(path text) RETURNS TABLE (term bigint, asked float8, answered float8)
	LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM watch_ends) LOOP
			asked := extract(epoch FROM clock_timestamp());
			IF zk_is_leader(path) THEN
				term := (SELECT e.term FROM zk_elections e WHERE e.path = watch_leader.path);
				answered := extract(epoch FROM clock_timestamp());
				RETURN NEXT;
			END IF;
			PERFORM pg_sleep(0.002);
		END LOOP;
	END $$};

sub watch($self, @servers)
{
	foreach my $server (@servers)
	{
		$server->value($watch);
		my $session = $server->session(name => $server->name . '.watch');
		$session->query("SET zklock.on_lock_loss = 'abort'");
		$session->query_start("SELECT term, min(answered) AS since, greatest(min(answered), max(asked))
			FROM watch_leader('$self->{path}') WHERE term IS NOT NULL GROUP BY term ORDER BY since");
		# It has looked when it sleeps.
		$server->wait_value('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $session->pid, 'PgSleep');
		push @{ $self->{watching} }, [ $server, $session ];
	}
	return;
}

sub watched($self)
{
	my (@intervals, %terms);
	foreach my $watching (@{ delete $self->{watching} })
	{
		my ($server, $session) = @$watching;
		$server->value('INSERT INTO watch_ends VALUES (true)');
		foreach my $row (@{ $session->result->{rows} || [] })
		{
			my ($term, $since, $until) = @$row;
			push @intervals, [ $since, $until, 'exclusive', $server->name . " in term $term", $term ];
			push @{ $terms{ $server->name } }, $term;
		}
		$session->disconnect;
	}
	Test::More::is_deeply([ overlaps(@intervals) ], [], 'no two servers led at once');
	Test::More::ok(increasing(map { $_->[4] } sort { $a->[0] <=> $b->[0] } @intervals), 'and terms rise');
	return %terms;
}

sub led_once($self)
{
	my @names = map { $_->[0]->name } @{ $self->{watching} };
	my %terms = $self->watched;
	Test::More::is(scalar @{ $terms{$_} // [] }, 1, "$_ has led once") foreach @names;
	return;
}

1;
