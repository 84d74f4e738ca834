# Copyright (c) 2026, zklock contributors
#
# Runs the benchmarks; "make bench". Not a test of anything, but run by test/run-tap, which gives
# it what servers need. Each measure in each place is reported as if it was one.
#
# Environment:
#   BENCH_ROUNDS, BENCH_SECONDS   how many rounds; how long each contestant runs in each
#   BENCH_WARM_UP                 how long before them all, seconds
#   BENCH_ONLY, BENCH_PLACES      "think,closed", "memory,disk"; default: all
#   BENCH_COMMIT                  which commit this is
#   ZKLOCK_RESULTS                directory for rounds.json, from which test/bench/report makes
#                                 the tables

use v5.36;

use FindBin;
use lib $FindBin::Bin;

use Bench::Machine;
use Bench::Measure;
use Bench::Rounds;
use Bench::Stage;
use JSON::PP;
use POSIX qw(strftime);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $rounds  = $ENV{BENCH_ROUNDS}  || 7;
my $seconds = $ENV{BENCH_SECONDS} || 0.5;
my $warm_up = $ENV{BENCH_WARM_UP} || 10;
my $started = time;

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

my @measures = Bench::Measure::all();
my %wanted   = map { $_ => 1 } chosen($ENV{BENCH_ONLY}, map { $_->{name} } @measures);
my (@series, @failed);

# After each measure anew: what comes later may end the program.
my $results = $ENV{ZKLOCK_RESULTS} || PostgreSQL::Test::Utils::tempdir('results');
my @idle    = Bench::Machine::idle();

sub write_results
{
	my %results = (
		machine => Bench::Machine::description(),
		idle    => \@idle,
		date    => strftime('%Y-%m-%d', gmtime),
		rounds  => 0 + $rounds,
		seconds => 0 + $seconds,
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

foreach my $place (chosen($ENV{BENCH_PLACES}, qw(memory disk ensemble)))
{
	my @here = grep { $wanted{ $_->{name} } && " @{ $_->{places} } " =~ / $place / } @measures or next;
	my $stage = Bench::Stage->new($place);
	diag("there is no place for data as $place needs it") unless $stage;
	next unless $stage;
	$stage->warm_up($warm_up);
	foreach my $measure (@here)
	{
		next if measure_in($measure, $stage);
		# What failed may have left anything behind.
		eval { $stage->close };
		$stage = Bench::Stage->new($place)->warm_up($warm_up);
	}
	$stage->close;
}
push @idle, Bench::Machine::idle();
write_results();
done_testing;
