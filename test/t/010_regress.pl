# Copyright (c) 2026, zklock contributors
#
# The SQL contract: pg_regress runs sql/*.sql against a server of its own and compares
# with expected/*.out.

use Zklock::Test;
use File::Basename qw(dirname);
use IPC::Run;
use PostgreSQL::Test::Utils;

my $zk     = Zklock::ZooKeeper->standalone;
my $server = Zklock::Server->new(
	'main',
	zookeeper => $zk,
	extension => 0,
	# pg_regress makes its own database, where the extension is created.
	connect => 0,
	# pg_regress itself would wait for ever for a statement that hangs.
	conf => [ 'max_prepared_transactions = 2', "statement_timeout = '30s'" ]);

my $input = dirname(__FILE__) . '/../..';
# "make installcheck" runs the same, on a server that is there.
my ($regress) = slurp_file("$input/Makefile") =~ /^REGRESS = ((?:.*\\\n)*.*)$/m;
my @tests = split(' ', $regress =~ s/\\\n//gr);
is_deeply(
	[ sort map { s/.*\/(.*)\.sql$/$1/r } glob("$input/sql/*.sql") ],
	[ sort @tests ],
	'each file in sql/ is run');

my $mark   = $zk->mark;
my $output = PostgreSQL::Test::Utils::tempdir('regress');
chomp(my $bindir = `pg_config --bindir`);
my $printed = '';
my $done    = IPC::Run::run(
	[   $ENV{PG_REGRESS} || die('PG_REGRESS is not set; test/run-tap sets it'),
		"--bindir=$bindir",      "--inputdir=$input",
		"--outputdir=$output",   '--host=' . $server->host,
		'--port=' . $server->port, '--dbname=zklock_regress',
		'--encoding=UTF8',       '--no-locale',
		@tests ],
	'<', \undef, '>&', \$printed);
note $printed;

# Results look like "test lock  ... ok  10 ms" up to PostgreSQL 15, and TAP since.
my %result;
foreach (split /\n/, $printed)
{
	$result{$1} = $2 if /^test (\S+)\s+\.\.\. (\w+)/;
	$result{$2} = $1 if /^((?:not )?ok) +\d+ +[-+] (\S+)/;
}
is($result{$_}, 'ok', "sql/$_.sql gives what is expected") foreach @tests;
ok($done, 'pg_regress is content')
  or diag(-e "$output/regression.diffs" ? slurp_file("$output/regression.diffs") : $printed);

$server->value('DROP DATABASE zklock_regress');
$server->value('CREATE EXTENSION zklock');
cmp_ok($zk->requests($mark)->{create2}, '>', 50, 'locks were really taken');
done_clean($zk, $server);
