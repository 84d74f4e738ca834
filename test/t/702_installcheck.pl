# Copyright (c) 2026, zklock contributors
#
# make installcheck, PGXS's own way: the SQL contract on a server that runs. It can be repeated, and
# works outside the source tree. Of an archive for PGXN (ZKLOCK_ARCHIVE), pgxnclient does the same.

use Zklock::Test;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;

my $top    = abs_path(dirname(__FILE__) . '/../..');
my ($zk, $server) = cast('main', conf => ['max_prepared_transactions = 2'], extension => 0, connect => 0);
my %connection = (PGHOST => $server->host, PGPORT => $server->port, PGUSER => getpwuid($>));

# The server of a demo or of a package would have the roles of an earlier run.
foreach my $run (qw(first second))
{
	my $where = PostgreSQL::Test::Utils::tempdir("outside_$run");
	local @ENV{ keys %connection } = values %connection;
	my ($printed, $errors) = run_command([ 'make', '-C', $where, '-f', "$top/Makefile", 'installcheck' ]);
	like($printed, qr/^(?:# )?\s*All \d+ tests passed/m, "the $run time")
	  or diag($printed, $errors, -e "$where/regression.diffs" ? slurp_file("$where/regression.diffs") : '');
}

SKIP:
{
	skip 'no archive for PGXN (make dist-test)', 1 unless $ENV{ZKLOCK_ARCHIVE};
	local $ENV{PGUSER} = $connection{PGUSER};
	my ($printed, $errors) =
	  run_command([ qw(pgxn check --testing -h), $server->host, '-p', $server->port, '-d', 'contrib_regression', $ENV{ZKLOCK_ARCHIVE} ]);
	like($printed, qr/^(?:# )?\s*All \d+ tests passed/m, 'pgxn check') or diag($printed, $errors);
}
done_testing;
