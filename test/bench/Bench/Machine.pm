# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Machine - on what the figures were measured

=head1 SYNOPSIS

  Bench::Machine::description();   # [ [ 'processors', '2 x ...' ], [ 'memory', '23 GB' ], ... ]
  Bench::Machine::idle();          # 0.98
  Bench::Machine::date();          # '2026-11-22'

C<idle> is the fraction of processor time that is idle, within a second: at the beginning and the end
of a run it shows whether others are at work on the machine.

=cut

package Bench::Machine;

use v5.36;

use POSIX qw(strftime uname);
use Zklock::Util qw(nap);
use Zklock::ZooKeeper;

sub _text($file) { open(my $fh, '<', $file) or return ''; local $/; return <$fh> // ''; }
sub _first_line($text) { my ($line) = split /\n/, $text // ''; return $line // ''; }

sub _jar_version($name)
{
	my ($file) = glob "/usr/share/java/$name-[0-9]*.jar";
	return ($file // '') =~ /-(\d[\w.]*)\.jar$/ ? $1 : 'unknown';
}

sub description
{
	my $processors = _text('/proc/cpuinfo');
	my $count      = () = $processors =~ /^processor\s*:/mg;
	my ($model) = $processors =~ /^model name\s*:\s*(.*)/m;
	my ($memory) = _text('/proc/meminfo') =~ /^MemTotal:\s+(\d+)/m;
	my ($system) = _text('/etc/os-release') =~ /^PRETTY_NAME="?([^"\n]*)/m;
	my ($java)   = `java -version 2>&1` =~ /version "([^"]+)"/;
	my ($kazoo)  = `python3 -c 'import kazoo; print(kazoo.__version__)' 2>/dev/null` =~ /(\S+)/;
	my ($library) = `dpkg-query -W -f='\${Version}' libzookeeper-mt-dev 2>/dev/null` =~ /(\S+)/;
	my ($version) = _text('zklock.control') =~ /^default_version = '([^']+)'/m;
	$version .= ", commit $ENV{BENCH_COMMIT}" if $version && $ENV{BENCH_COMMIT};
	return [
		[ 'zklock',     $version // 'unknown' ],
		[ 'processors', "$count x " . ($model // (uname())[4]) ],
		[ 'memory',     sprintf('%.0f GB', ($memory // 0) / 1024 / 1024) ],
		[ 'system',     ($system // '') . ', Linux ' . (uname())[2] ],
		[ 'PostgreSQL', _first_line(`pg_config --version`) =~ s/^PostgreSQL //r ],
		[ 'ZooKeeper',  _jar_version('zookeeper') . ', Java ' . ($java // 'unknown') ],
		[ 'libzookeeper_mt', $library // 'unknown' ],
		[ 'Curator', _jar_version('curator-recipes') ],
		[ 'kazoo', $kazoo // 'unknown' ] ];
}

sub _ticks
{
	my @ticks = (split /\s+/, _first_line(_text('/proc/stat')))[ 1 .. 8 ];
	my $all   = 0;
	$all += $_ foreach @ticks;
	return ($all, $ticks[3] + $ticks[4]);
}

sub idle
{
	my ($all, $idle) = _ticks();
	nap(1);
	my ($all_now, $idle_now) = _ticks();
	return $all_now > $all ? ($idle_now - $idle) / ($all_now - $all) : 0;
}

sub date { return strftime('%Y-%m-%d', gmtime); }

1;
