# Copyright (c) 2026, zklock contributors
#
# The SQL contract: "make installcheck", PGXS's own way, runs sql/*.sql on a server that is there, and compares with
# expected/*.out. It can be repeated, and works outside the source tree. Of an archive for PGXN (ZKLOCK_ARCHIVE),
# pgxnclient does the same.

use Zklock::Test;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;

my $top = abs_path(dirname(__FILE__) . '/../../..');
# pg_regress itself would wait for ever for a statement that hangs.
my ($zk, $server) = cast('main', zk => { request_log => 1 }, connect => 0, conf => [ 'max_prepared_transactions = 2', "statement_timeout = '@{[ scaled('30s') ]}'" ]);

my ($regress) = slurp_file("$top/Makefile") =~ /^REGRESS = ((?:.*\\\n)*.*)$/m;
my @tests = sort split(' ', $regress =~ s/\\\n//gr);
is_deeply([ sort map { s/.*\/(.*)\.sql$/$1/r } glob("$top/sql/*.sql") ], \@tests, 'each file in sql/ is run');

local @ENV{qw(PGHOST PGPORT PGUSER)} = ($server->host, $server->port, scalar getpwuid($>));

# The server of a demo or of a package would have the roles of an earlier run.
foreach my $run (qw(first second))
{
	subtest "the SQL contract, the $run time" => sub {
		my $where = PostgreSQL::Test::Utils::tempdir("outside_$run");
		my $mark  = $zk->mark;
		my ($printed, $errors) = run_command([ 'make', '-C', $where, '-f', "$top/Makefile", 'installcheck' ]);

		# Results look like "test lock  ... ok  10 ms" up to PostgreSQL 15, and TAP since.
		my %result;
		foreach (split /\n/, $printed)
		{
			$result{$1} = $2 if /^test (\S+)\s+\.\.\. (\w+)/;
			$result{$2} = $1 if /^((?:not )?ok) +\d+ +[-+] (\S+)/;
		}
		is($result{$_}, 'ok', "sql/$_.sql gives what is expected") foreach @tests;
		like($printed, qr/^(?:# )?\s*All \d+ tests passed/m, 'pg_regress is content')
		  or diag($printed, $errors, -e "$where/regression.diffs" ? slurp_file("$where/regression.diffs") : '');
		cmp_ok($zk->requests($mark)->{create2}, '>', 50, 'locks were really taken');
	};
}

SKIP:
{
	skip 'no archive for PGXN (make dist-test)', 1 unless $ENV{ZKLOCK_ARCHIVE};
	my ($printed, $errors) =
	  run_command([ qw(pgxn check --testing -h), $server->host, '-p', $server->port, '-d', 'contrib_regression', $ENV{ZKLOCK_ARCHIVE} ]);
	like($printed, qr/^(?:# )?\s*All \d+ tests passed/m, 'pgxn check') or diag($printed, $errors);
}

done_clean($zk, $server);
