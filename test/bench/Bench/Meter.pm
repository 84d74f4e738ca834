# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Meter - what ZooKeeper's servers and the clients' processes have done

=head1 SYNOPSIS

  my ($outcome, $cost) = Bench::Meter::around($zk, \@pids, sub { ... return { acquisitions => 100, ... } });
  # $cost: { requests, bytes, watches, cpu, server_cpu } for each acquisition

C<requests>, C<bytes> (both directions) and C<watches> (that fired) are ZooKeeper's own counters, of its command
C<mntr>, all servers together; what servers of an ensemble tell each other is not among
them, nor are watches that were given up unfired. C<cpu> is what the processes took, in
microseconds, as the kernel counts it for each of their threads (F</proc/PID/task/TID/schedstat>);
C<server_cpu> the same of ZooKeeper's servers.

=cut

package Bench::Meter;

use v5.36;

use List::Util qw(sum0);

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
	return \%sum;
}

# Microseconds on a processor, of all its threads that still exist
sub cpu_of($pid)
{
	my $sum = 0;
	foreach my $file (glob "/proc/$pid/task/*/schedstat")
	{
		open(my $fh, '<', $file) or next;
		$sum += (split / /, <$fh> // '0')[0] / 1000;
	}
	return $sum;
}

sub _processors($zk, @pids)
{
	return { cpu => sum0(map { cpu_of($_) } @pids), server_cpu => sum0(map { cpu_of($_->pid) } $zk->servers) };
}

# Processor time is read inside of the counters: to tell those costs a server some, too.
sub around($zk, $pids, $code)
{
	my $counters   = counters_of($zk->four_letter('mntr'));
	my $processors = _processors($zk, @$pids);
	my $outcome    = $code->();
	my $after      = _processors($zk, @$pids);
	$after = { %$after, %{ counters_of($zk->four_letter('mntr')) } };
	return ($outcome, cost({ %$processors, %$counters }, $after, $outcome->{acquisitions}));
}

sub cost($before, $after, $acquisitions)
{
	return {} unless $acquisitions;
	return { map { $_ => ($after->{$_} - $before->{$_}) / $acquisitions } keys %$before };
}

1;
