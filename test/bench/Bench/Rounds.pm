# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Rounds - runs a measure: contestants in turn, many short rounds

=head1 SYNOPSIS

  my @series = Bench::Rounds::run($measure, $stage, rounds => 9, seconds => 0.5);
  my $microseconds = Bench::Rounds::cpu_of(@pids);

In each round all cases come one after the other, and in each case all contestants, in an order that
changes from round to round. So what disturbs the machine for a while disturbs all alike, and what one
contestant has to another within a round says more than any figure by itself. Before the
first round all have run once, unmeasured.

A series is the rounds of one contestant in one case:

  { measure, case, place, contestant, rounds => [ { p50, p99, rate, count, requests, bytes, ... }, ... ] }

The n-th round of each is the same round. Figures that do not exist are missing. What an acquisition costs:

  requests, bytes (both directions), watches (that fired)
              ZooKeeper's own counters, of its command mntr, all servers together; what servers of an ensemble
              tell each other is not among them, nor are watches that were given up unfired
  cpu         what the client's processes took, in microseconds, as the kernel counts it for each of their threads
              (/proc/PID/task/TID/schedstat)
  server_cpu  the same of ZooKeeper's servers
  switches    context switches of the whole machine (/proc/stat), to which the processor time is nearly proportional

=cut

package Bench::Rounds;

use v5.36;

use Bench::Figures qw(figures);

# Names in mntr's answer, of which each number is the sum
my %counters = (
	requests => qr/^zk_packets_received$/,
	bytes    => qr/^zk_(?:bytes_received_count|response_bytes)$/,
	watches  => qr/^zk_sum_node_(?:children|created|changed|deleted)_watch_count$/);

sub counters_of($mntr)
{
	my %sum = map { $_ => 0 } keys %counters;
	foreach my $line (split /\n/, $mntr)
	{
		my ($name, $value) = split /\t/, $line;
		next unless defined $value;
		$sum{$_} += $value foreach grep { $name =~ $counters{$_} } keys %counters;
	}
	return %sum;
}

# Of all threads that still exist
sub cpu_of(@pids)
{
	my $sum = 0;
	foreach my $file (map { glob "/proc/$_/task/*/schedstat" } @pids)
	{
		open(my $fh, '<', $file) or next;
		$sum += (split / /, <$fh> // '0')[0] / 1000;
	}
	return $sum;
}

sub switches
{
	open(my $fh, '<', '/proc/stat') or return 0;
	my ($count) = grep { defined } map { /^ctxt (\d+)/ ? $1 : undef } <$fh>;
	return $count // 0;
}

sub _processors($stage, @pids)
{
	return (cpu => cpu_of(@pids), server_cpu => cpu_of(map { $_->pid } $stage->zk->servers), switches => switches());
}

sub cost($before, $after, $acquisitions)
{
	return map { $_ => ($after->{$_} - $before->{$_}) / $acquisitions } $acquisitions ? keys %$before : ();
}

# Does a contestant's run, and finds out what it has cost. Processor time is read inside of the counters: to tell
# those costs a server some, too.
sub _measure($stage, $contestant, $seconds)
{
	my @pids = @{ $contestant->{pids} || [] };
	$contestant->{prepare}->() if $contestant->{prepare};
	my %before  = (counters_of($stage->zk->four_letter('mntr')), _processors($stage, @pids));
	my $outcome = $contestant->{run}->($seconds);
	my %after   = (_processors($stage, @pids), counters_of($stage->zk->four_letter('mntr')));
	$contestant->{finish}->() if $contestant->{finish};
	my %cost = cost(\%before, \%after, $outcome->{acquisitions});
	delete $cost{cpu} unless @pids;
	return {
		%{ figures($outcome->{durations}, $outcome->{seconds} || $seconds) },
		%cost,
		%{ $outcome->{figures} || {} } };
}

# Another one begins each time, and every second time they go the other way round.
sub order($round, @contestants)
{
	push @contestants, splice(@contestants, 0, int($round / 2) % @contestants);
	return $round % 2 ? reverse @contestants : @contestants;
}

sub run($measure, $stage, %opt)
{
	my @cases   = $measure->{cases}->($stage);
	my $rounds  = $opt{rounds} * $measure->{rounds_factor};
	my $seconds = $opt{seconds} * $measure->{seconds_factor};
	foreach my $case (@cases)
	{
		foreach my $contestant (@{ $case->{contestants} })
		{
			$contestant->{series} = {
				measure    => $measure->{name},
				case       => $case->{name},
				place      => $stage->place,
				contestant => $contestant->{name},
				rounds     => [] };
			_measure($stage, $contestant, $seconds);
		}
	}
	foreach my $round (0 .. $rounds - 1)
	{
		foreach my $contestant (map { order($round, @{ $_->{contestants} }) } @cases)
		{
			push @{ $contestant->{series}{rounds} }, _measure($stage, $contestant, $seconds);
		}
		$stage->tidy;
	}
	$measure->{finish}->($stage);
	return map { $_->{series} } map { @{ $_->{contestants} } } @cases;
}

1;
