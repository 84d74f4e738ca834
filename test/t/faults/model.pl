# Copyright (c) 2026, zklock contributors
#
# The model of ZooKeeper on which the simulation relies (test/simulate), beside a real server: operations of
# several sessions by chance, and all answers and watch events are the same, also those that a session hears of
# when it comes back after it was cut off.

use Zklock::Test;
use FindBin;
use Cwd qw(abs_path);
use PostgreSQL::Test::Utils;

my $source = abs_path("$FindBin::Bin/../../simulate");
my $built  = PostgreSQL::Test::Utils::tempdir;
my $zk     = Zklock::ZooKeeper->standalone(maxSessionTimeout => 60000);
my ($host, $port) = split /:/, $zk->connect_string;
my $operations = $ENV{MODEL_OPERATIONS} // 1000;

# What a client of one of them hears, line by line
sub heard($of, @seed_and_operations)
{
	my ($out) = run_command([ "$built/compare-$of", $host, $port, @seed_and_operations ]);
	return [ split /\n/, $out ];
}

command_ok([ 'make', '-s', '-C', $source, "OUT=$built", 'compare' ], 'the model is built');
for (1 .. 2)
{
	my $seed = $ENV{MODEL_SEED} // int rand 1e6;
	my $real = heard('real', $seed, $operations);
	my $last = $operations - 1;
	ok(grep({ /^$last, session/ } @$real), "$operations operations with the seed $seed, of a real server");
	is_deeply(heard('model', $seed, $operations), $real, 'and the model tells what that tells');
}

done_testing;
