# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Machine - on what the figures were measured

=head1 SYNOPSIS

  Bench::Machine::description();   # [ [ 'processors', '2 x ...' ], [ 'memory', '23 GB' ], ... ]
  Bench::Machine::idle();          # 0.98

C<idle> is the fraction of processor time that is idle, within a second: at the beginning and the end
of a run it shows whether others are at work on the machine.

=cut

package Bench::Machine;

use v5.36;

use List::Util qw(sum);
use POSIX qw(uname);
use PostgreSQL::Test::Utils;
use Zklock::Util qw(nap);

sub _found($pattern, $text, $default = 'unknown') { return $text =~ $pattern ? $1 : $default; }
sub _in($file, $pattern, @default) { return _found($pattern, -r $file ? slurp_file($file) : '', @default); }
sub _said($pattern, $command) { return _found($pattern, scalar `$command 2>&1`); }
sub _jar($name) { return _found(qr/-(\d[\w.]*)\.jar$/, (glob "/usr/share/java/$name-[0-9]*.jar")[0] // ''); }

sub description
{
	my $commit = $ENV{BENCH_COMMIT} ? ", commit $ENV{BENCH_COMMIT}" : '';
	my $count  = () = slurp_file('/proc/cpuinfo') =~ /^processor\s*:/mg;
	return [
		[ 'zklock',     _in('zklock.control', qr/^default_version = '([^']+)'/m) . $commit ],
		[ 'processors', "$count x " . _in('/proc/cpuinfo', qr/^model name\s*:\s*(.*)/m, (uname())[4]) ],
		[ 'memory',     sprintf('%.0f GB', _in('/proc/meminfo', qr/^MemTotal:\s+(\d+)/m, 0) / 1024 / 1024) ],
		[ 'system',     _in('/etc/os-release', qr/^PRETTY_NAME="?([^"\n]*)/m) . ', Linux ' . (uname())[2] ],
		[ 'PostgreSQL', _said(qr/^PostgreSQL (.*)/, 'pg_config --version') ],
		[ 'ZooKeeper',  _jar('zookeeper') . ', Java ' . _said(qr/version "([^"]+)"/, 'java -version') ],
		[ 'libzookeeper_mt', _said(qr/^(\d\S+)$/, q(dpkg-query -W -f='${Version}' libzookeeper-mt-dev)) ],
		[ 'Curator', _jar('curator-recipes') ],
		[ 'kazoo', _said(qr/^(\d\S+)$/, q(python3 -c 'import kazoo; print(kazoo.__version__)')) ] ];
}

# Ticks of processors, so far: all, and idle
sub _ticks
{
	my @ticks = (split ' ', slurp_file('/proc/stat'))[ 1 .. 8 ];
	return (sum(@ticks), $ticks[3] + $ticks[4]);
}

sub idle
{
	my ($all, $idle) = _ticks();
	nap(1);
	my ($all_now, $idle_now) = _ticks();
	return ($idle_now - $idle) / ($all_now - $all);
}

1;
