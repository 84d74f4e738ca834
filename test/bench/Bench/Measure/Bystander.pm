# Copyright (c) 2026, zklock contributors
#
# What those pay who do not use it.

package Bench::Measure::Bystander;

use strict;
use warnings;

use parent 'Bench::Measure';

use IPC::Run;

sub name  { return 'bystander'; }
sub title { return 'Transactions that use no zklock function'; }

sub text
{
	return <<'END';
pgbench, one client, on two servers that differ in whether zklock is loaded.
END
}

sub places  { return 'memory'; }
sub columns { return qw(rate ratio); }

# A difference of one in a hundred takes more rounds to see.
sub rounds_factor { return 4; }

sub _pgbench
{
	my ($server, @options) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'pgbench', '-h', $server->host, '-p', $server->port, @options, 'postgres' ], '>', \$out, '2>', \$err)
	  or die "pgbench @options: $err";
	return $out;
}

sub _contestant
{
	my ($name, $server, @script) = @_;
	my $transactions = 200;
	_pgbench($server, '-i', '-q', '-s', '1');
	return {
		name => $name,
		run  => sub {
			my ($seconds) = @_;
			my $said = _pgbench($server, '-n', '-M', 'prepared', @script, '-t', $transactions);
			my ($rate) = $said =~ /^tps = ([\d.]+) \((?:without|excluding)/m or die "pgbench does not say how fast it was: $said";
			my $done = $transactions;
			$transactions = int($rate * $seconds) + 1;
			return { durations => [], acquisitions => $done, figures => { rate => 0 + $rate } };
		} };
}

sub cases
{
	my ($self, $stage) = @_;
	my $loaded = $stage->server('loaded');
	my $plain  = $stage->server('plain', preload => 0, extension => 0);
	return map {
		my ($name, @script) = @$_;
		{
			name => $name,
			contestants => [ _contestant('zklock', $loaded, @script), _contestant('not loaded', $plain, @script) ] };
	} [ 'select-only', '-S' ], ['tpcb'];
}

1;
