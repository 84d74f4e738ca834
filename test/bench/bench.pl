# Copyright (c) 2026, zklock contributors
#
# Runs the benchmarks; "make bench". Not a test of anything, but run by test/perl/run-tap, which gives
# it what servers need. Each measure in each place is reported as if it was one.
#
# Environment:
#   BENCH_ROUNDS, BENCH_SECONDS   how many rounds; how long each contestant runs in each
#   BENCH_WARM_UP                 how long programs in Java run before, seconds, at least
#   BENCH_ONLY, BENCH_PLACES      "think,closed", "memory,disk"; default: all
#   BENCH_BASE                    stage directory of another build: only that is compared, where sessions lock and unlock
#   BENCH_COMMIT                  which commit this is
#   ZKLOCK_RESULTS                directory for rounds.json, from which test/bench/report makes
#                                 the tables

use v5.36;

use FindBin;
use lib $FindBin::Bin;

use Bench::Measure;
use Bench::Rounds;
use Bench::Stage;
use JSON::PP;
use List::Util qw(sum);
use POSIX qw(strftime uname);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Zklock::Util qw(nap);

my $rounds  = $ENV{BENCH_ROUNDS}  || 7;
my $seconds = $ENV{BENCH_SECONDS} || 0.5;
my $warm_up = $ENV{BENCH_WARM_UP} || 10;
my $started = time;

# ---- on what it is measured

sub found($pattern, $text, $default = 'unknown') { return $text =~ $pattern ? $1 : $default; }
sub found_in($file, $pattern, @default) { return found($pattern, -r $file ? slurp_file($file) : '', @default); }
sub said($pattern, $command) { return found($pattern, scalar `$command 2>&1`); }
sub jar($name) { return found(qr/-(\d[\w.]*)\.jar$/, (glob "/usr/share/java/$name-[0-9]*.jar")[0] // ''); }

sub machine
{
	my $commit = $ENV{BENCH_COMMIT} ? ", commit $ENV{BENCH_COMMIT}" : '';
	my $count  = () = slurp_file('/proc/cpuinfo') =~ /^processor\s*:/mg;
	return [ grep { $_->[1] ne 'unknown' }
		[ 'zklock',     found_in('zklock.control', qr/^default_version = '([^']+)'/m) . $commit ],
		[ 'processors', "$count x " . found_in('/proc/cpuinfo', qr/^model name\s*:\s*(.*)/m, (uname())[4]) ],
		[ 'memory',     sprintf('%.0f GB', found_in('/proc/meminfo', qr/^MemTotal:\s+(\d+)/m, 0) / 1024 / 1024) ],
		[ 'system',     found_in('/etc/os-release', qr/^PRETTY_NAME="?([^"\n]*)/m) . ', Linux ' . (uname())[2] ],
		[ 'PostgreSQL', said(qr/^PostgreSQL (.*)/, 'pg_config --version') ],
		[ 'ZooKeeper',  jar('zookeeper') . ', Java ' . said(qr/version "([^"]+)"/, 'java -version') ],
		[ 'libzookeeper_mt', said(qr/^(\d\S+)$/, q(dpkg-query -W -f='${Version}' libzookeeper-mt-dev)) ],
		[ 'Curator', jar('curator-recipes') ],
		[ 'JDBC', jar('postgresql') ],
		[ 'kazoo', said(qr/^(\d\S+)$/, q(python3 -c 'import kazoo; print(kazoo.__version__)')) ],
		[ 'etcd', said(qr/^etcd Version: (\S+)/, 'etcd --version') ],
		[ 'Redis', said(qr/ v=(\S+)/, 'redis-server --version') ] ];
}

# Ticks of processors, so far: all, and idle
sub ticks
{
	my @ticks = (split ' ', slurp_file('/proc/stat'))[ 1 .. 8 ];
	return (sum(@ticks), $ticks[3] + $ticks[4]);
}

# The fraction of processor time that is idle, within a second: at the beginning and the end it shows whether others
# are at work on the machine.
sub idle
{
	my ($all, $idle) = ticks();
	nap(1);
	my ($all_now, $idle_now) = ticks();
	return ($idle_now - $idle) / ($all_now - $all);
}

# ---- what is measured

# A list from the environment, or all of what there is.
sub chosen($list, @all)
{
	my @chosen = split /[\s,]+/, $list // '';
	foreach my $name (@chosen)
	{
		BAIL_OUT("there is no $name; there are: @all") unless grep { $_ eq $name } @all;
	}
	return @chosen ? @chosen : @all;
}

# With another build of zklock nobody else is compared.
sub of_two_builds($measure)
{
	my $cases = $measure->{cases};
	return { %$measure, cases => sub ($stage) {
		return map { { %$_, contestants => [ grep { $_->{name} =~ /^zklock(?:, before)?$/ } @{ $_->{contestants} } ] } } $cases->($stage);
	} };
}

my @measures = Bench::Measure::all();
@measures = map { of_two_builds($_) } grep { $_->{name} =~ /^(?:guarded|think|closed|paths|handover)$/ } @measures if $ENV{BENCH_BASE};
my %wanted   = map { $_ => 1 } chosen($ENV{BENCH_ONLY}, map { $_->{name} } @measures);
my (@series, @failed);

# After each measure anew: what comes later may end the program.
my $results = $ENV{ZKLOCK_RESULTS} || PostgreSQL::Test::Utils::tempdir('results');
my @idle    = idle();

sub write_results
{
	my %results = (
		machine => machine(),
		idle    => \@idle,
		date    => strftime('%Y-%m-%d', gmtime),
		rounds  => 0 + $rounds,
		seconds => 0 + $seconds,
		warm_up => 0 + $warm_up,
		series  => \@series,
		failed  => \@failed);
	unlink "$results/rounds.json";
	append_to_file("$results/rounds.json", JSON::PP->new->utf8->canonical->pretty->encode(\%results));
	return;
}

sub measure_in($measure, $stage)
{
	my $name = "$measure->{name}, " . $stage->place;
	my $done = eval {
		diag(sprintf('%4d s  %s', time - $started, $name));
		push @series, Bench::Rounds::run($measure, $stage, rounds => $rounds, seconds => $seconds);
		$stage->close_sessions;
		1;
	};
	push @failed, { measure => $measure->{name}, place => $stage->place, why => "$@" } unless $done;
	ok($done, $name) or diag($@);
	write_results();
	return $done;
}

foreach my $place (chosen($ENV{BENCH_PLACES}, qw(memory disk ensemble delay)))
{
	my @here = grep { $wanted{ $_->{name} } && " @{ $_->{places} } " =~ / $place / } @measures or next;
	my $stage = Bench::Stage->new($place, warm_up => $warm_up);
	diag("there is no place for data as $place needs it") unless $stage;
	next unless $stage;
	foreach my $measure (@here)
	{
		next if measure_in($measure, $stage);
		# What failed may have left anything behind.
		eval { $stage->close };
		$stage = Bench::Stage->new($place, warm_up => $warm_up);
	}
	$stage->close;
}
push @idle, idle();
write_results();
done_testing;
