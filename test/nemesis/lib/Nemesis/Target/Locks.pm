# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Target::Locks - exclusive locks, of SQL clients and of Java services with Curator

The clients are lock_client.pl and lock_curator_client.pl. They work in Nemesis::Register under
the locks that they take; Nemesis::Checker judges.

=cut

package Nemesis::Target::Locks;

use v5.36;

use parent 'Nemesis::Target';

use List::Util qw(sum0);
use Nemesis::Checker;
use Nemesis::Register;

my @quick = map { "/nemesis/quick$_" } 1 .. 4;
my @slow  = map { "/nemesis/slow$_" } 1 .. 3;

sub share { return 6; }
sub paths { return (@quick, @slow); }
sub emptied { return (@quick, @slow); }
sub users { return q{SELECT pid, state FROM zk_locks WHERE state IN ('held', 'waiting')}; }

sub prepare($self, $run)
{
	Nemesis::Register->create($run->register, $self->paths);
	return;
}

# The quiet server has a single client, which holds its lock for long: a connection with writes
# on their way shows soon that the ensemble is away, one where a lock is held does not.
sub clients($self, $run, $count)
{
	my %paths = (quick => \@quick, slow => \@slow);
	my @sql = map {
		{
			$run->sql_client($_ == 1 ? $run->quiet_server : $run->busy_server($_), $_),
			script => 'lock_client.pl',
			keeps  => $slow[ $_ - 1 ],
			%paths
		}
	} 1 .. $count;
	my @java = map {
		{
			name            => "curator$_",
			script          => 'lock_curator_client.pl',
			hosts           => $run->zookeeper->connect_string,
			session_timeout => 1000 * $run->session_timeout,
			pid_file        => $run->directory . "/curator$_.pid",
			%paths
		}
	} 1 .. 2;
	return (@sql, @java);
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

sub check($self, $run, @attempts)
{
	my @violations = $self->settle($run, @attempts);
	my $verdict = Nemesis::Checker->check(
		attempts        => \@attempts,
		writes          => [ Nemesis::Register->writes($run->register) ],
		interventions   => $run->interventions,
		session_timeout => $run->session_timeout);
	my %count = %{ $verdict->{counts} };
	return {
		violations => [ @violations, @{ $verdict->{violations} } ],
		activity   => [ $count{acquisitions} || 0, $run->client_count, 'locks were taken' ],
		summary    => [
			[ 'acquisitions', $count{acquisitions} || 0 ],
			[ '  committed', $count{committed} || 0 ],
			[ '  aborted for other reasons', $count{aborted} || 0 ],
			[ 'losses noticed', sum0 map { $count{$_} || 0 } qw(refused lost) ],
			[ '  guarded commits refused', $count{refused} || 0 ],
			[ 'not granted in time, or failed', sum0 map { $count{$_} || 0 } qw(timeout failed) ],
			[ 'believed holds that overlapped', $count{overlaps} || 0 ],
			[ '  by intervention', $count{overlaps_by_intervention} || 0 ],
			[ '  longest detection latency', sprintf('%.3f s', $verdict->{latency}) ],
			[ 'writes accepted: unfenced', $count{unfenced_writes} || 0 ],
			[ '  of which lost an update', $count{lost_unfenced_updates} || 0 ],
			[ 'writes accepted: fenced', $count{fenced_writes} || 0 ] ] };
}

1;
