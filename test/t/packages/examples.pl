# Copyright (c) 2026, zklock contributors
#
# The examples of the documents run as they are written, in the order in which they stand; those of the tutorial
# with the servers of the demo. (README.md's commands for a role have a test of their own, 007.)
#
# Those of the guide for a pool run through PgBouncer in transaction mode.
#
# In SQL a comment behind a statement that begins with "true" or "false:" is its result; "--> words", there or in
# lines that follow, is one as well: of the tutorial, a statement may wait, fail, or give that soon. What has
# neither may be anything but false. Settings are accepted by a server, Java is compiled, and the services that
# share a lock with SQL run.

use Zklock::Test;
use Cwd qw(abs_path);
use IO::Socket::INET;
use File::Basename qw(dirname);
use IPC::Run;
use PostgreSQL::Test::Utils;
use Zklock::Jars;
use Zklock::Process;
use Zklock::Session;
use Zklock::Util qw(blocks);

my $top    = abs_path(dirname(__FILE__) . '/../../..');
my ($zk, $server) = cast('a', conf => [ 'max_prepared_transactions = 10', "zklock.elections = '/jobs/leader'",
	'search_path = \'"$user", public, zklock\'' ]);
# As README.md does it
my $install = "CREATE SCHEMA zklock; GRANT USAGE ON SCHEMA zklock TO PUBLIC; CREATE EXTENSION zklock SCHEMA zklock";

# Statements of a block, each with what is said of it
sub statements($sql)
{
	my (@statements, $quoted);
	my $statement = '';
	foreach my $line (split /\n/, $sql)
	{
		$quoted = !$quoted if (() = $line =~ /\$\$(?!\/)/g) % 2;
		if (!$quoted && $line =~ /^(.*;)(?:\s+--\s*(.*))?$/)
		{
			push @statements, [ "$statement$1", $2 // () ];
			$statement = '';
		}
		elsif ($statement eq '' && $line =~ /^--(> .*)/) { push @{ $statements[-1] }, $1; }
		elsif ($line !~ /^\s*--/ || $statement ne '')    { $statement .= "$line\n"; }
	}
	is($statement =~ s/\s//gr, '', 'the block ends with a statement');
	return @statements;
}

sub words($statement) { return join(' ', split ' ', $statement); }

# Rows as they are written
sub rows($text) { return $text =~ s/\|/ | /gr; }

sub run_statement($session, $statement, @said)
{
	my $result = $session->try($statement);
	my $what   = words($statement);
	my $said   = join("\n", @said);
	return is($result->{sqlstate}, $1, $what) if $said =~ /^> ERROR (\w+)$/;
	ok($result->{ok}, $what) or diag($result->{error});
	return is(rows($result->{text}), $said =~ s/^> *//mgr, "... is $said") if $said =~ /^>/;
	return unless $result->{ok} && @{ $result->{rows} };
	if    ($said =~ /^true\b/)   { is($result->{text}, 't', '... is true'); }
	elsif ($said =~ /^false\b:/) { is($result->{text}, 'f', '... is false'); }
	else                         { isnt($result->{text}, 'f', '... is not false'); }
	return;
}

sub run_sql($session, $sql)
{
	foreach my $pair (statements($sql))
	{
		my ($statement, @said) = @$pair;
		# A variable of psql's
		$statement =~ s/:'token'/"'" . $session->query(q{SELECT coalesce(max(token), 0) + 1 FROM zk_fencing.zk_fences}) . "'"/e;
		# README.md uses it before it says how it is made.
		$session->query('DROP SCHEMA zklock CASCADE') if $statement =~ /^CREATE SCHEMA zklock;/;
		run_statement($session, $statement, @said);
	}
	return;
}

# Lines of postgresql.conf
sub check_settings($session, $text)
{
	foreach my $line (split /\n/, $text)
	{
		my ($name, $value) = $line =~ /^([\w.]+) = (.*?)(?:\s+#.*)?$/ or next;
		$value = "'$value'" unless $value =~ /^'/;
		ok($session->try("ALTER SYSTEM SET $name = $value")->{ok}, "$name = $value");
		$session->query("ALTER SYSTEM RESET $name");
	}
	return;
}

# Compiles code of Java, which is a class, or what a method does with a connection to the database.
sub compile_example($name, $code)
{
	my $directory = PostgreSQL::Test::Utils::tempdir();
	my $imports = $code =~ /^import /m ? '' : join('', map { "import $_;\n" } qw(java.sql.* java.util.concurrent.TimeUnit java.util.concurrent.TimeoutException
		  org.apache.curator.framework.* org.apache.curator.framework.recipes.locks.* org.apache.curator.retry.* org.apache.zookeeper.data.Stat));
	$imports .= "$1\n" while $code =~ s/^(import .*;)$//m;
	my $class = $code =~ /^class /m ? "$code\nclass Example {}\n" : <<"END";
class Example {
	static void run(java.sql.Connection connection, String[] paths) throws Exception { $code }
	public static void main(String[] args) throws Exception { run(args.length > 0 ? java.sql.DriverManager.getConnection(args[0]) : null, args); }
}
END
	append_to_file("$directory/Example.java", $imports . $class);
	is(system(javac_command('-cp', classpath(@peer_jars), '-d', $directory, "$directory/Example.java")),
		0, "$name: Java compiles");
	return $directory;
}

# The guide's pools, that of holders with two sessions, each of which any transaction may get; the port
my $pool;
sub pool_port
{
	return $pool->{port} if $pool;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $conf = PostgreSQL::Test::Utils::tempdir('pool') . '/pgbouncer.ini';
	my $to = 'host=' . $server->host . ' port=' . $server->port . ' user=' . $server->value('SELECT current_user') . ' dbname=postgres';
	my ($databases) = map { $_->[1] } grep { $_->[0] eq 'ini' && $_->[1] =~ /dbname/ } blocks("$top/doc/guide.md");
	is($databases =~ s/host=\S+ dbname=app/$to/g, 2, 'the guide has two pools');
	append_to_file($conf, join "\n", $databases, '[pgbouncer]', 'listen_addr = 127.0.0.1', "listen_port = $port", 'unix_socket_dir =', 'auth_type = any',
		'pool_mode = transaction', 'default_pool_size = 2', 'ignore_startup_parameters = extra_float_digits', '');
	$pool = Zklock::Process->new(name => 'pgbouncer', argv => [ '/usr/sbin/pgbouncer', $conf ]);
	wait_until { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) } 'the pool to listen';
	return $pool->{port} = $port;
}

sub run_python($file, $code)
{
	my $program = PostgreSQL::Test::Utils::tempdir('python') . '/example.py';
	append_to_file($program, join('', "import psycopg2\n",
		(map { "dsn_of_$_ = 'host=127.0.0.1 port=@{[ pool_port() ]} dbname=$_'\n" } qw(app app_waits)), $code));
	return is(system('python3', $program), 0, "$file: Python runs");
}

# What a client of one of the guide's pools gets
sub through($pool)
{
	return Zklock::Session->new(dsn => 'host=127.0.0.1 port=' . pool_port() . " dbname=$pool", name => $pool);
}

subtest 'those who wait for a reservation keep its holder out of their pool, and not where the guide has them wait' => sub {
	my $path   = '/jobs/starved';
	my $holder = through('app');
	foreach my $waits (qw(app app_waits))
	{
		my $token = $holder->query(sprintf(q{SELECT zk_reserve('%s', '%s')}, $path, $waits eq 'app' ? '2s' : '5min'));
		my @waiters = map { through($waits) } 1 .. 2;
		$_->query_start("SELECT zk_reserve('$path', '5min')") foreach @waiters;
		$server->wait_value("SELECT count(*) FROM zk_locks WHERE path = '$path' AND state = 'waiting'", 2);
		is($holder->query("SELECT zk_renew('$path', $token, '5min')"), $waits eq 'app' ? 'f' : 't', "they wait in $waits");
		wait_until
		{
			$server->value("SELECT count(zk_unreserve(path, fencing_token)) FROM zk_locks WHERE path = '$path' AND state = 'held'");
			$server->lock_count("path = '$path'") == 0
		}
		'all to have had it';
		$_->finish foreach @waiters;
	}
};

foreach my $file (map { s{^\Q$top\E/}{}r } "$top/README.md", glob("$top/doc/*.md"))
{
	next if $file =~ /tutorial|recipes/;    # packages/recipes.pl
	subtest $file => sub {
		my $session = $server->session;
		$session->query($_)
		  foreach 'SET client_min_messages = warning', 'DROP SCHEMA IF EXISTS public, zklock CASCADE', 'CREATE SCHEMA public', $install,
		  'CREATE TABLE account (id int PRIMARY KEY, balance int)', 'INSERT INTO account VALUES (7, 1000)';
		$session->query("DO 'BEGIN CREATE ROLE $_; EXCEPTION WHEN duplicate_object THEN END'")
		  foreach grep { slurp_file("$top/$file") !~ /^CREATE ROLE $_ /m } qw(batch pooled);
		# The lock that is taken away there
		my $holder = $server->session;
		$holder->query(q{SELECT zk_lock('/pay/lock')}) if $file eq 'doc/operations.md';
		foreach my $block (blocks("$top/$file"))
		{
			my ($language, $text) = @$block;
			if    ($language eq 'sql') { run_sql($session, $text); }
			elsif ($language eq '')    { check_settings($session, $text); }
			elsif ($language eq 'python') { run_python($file, $text); }
			elsif ($language eq 'java')
			{
				$text =~ s/"zk1[^"]*"/'"' . $zk->connect_string . '"'/e;
				my $classes = compile_example($file, $text);
				if ($text =~ /zk_reserve/)
				{
					my $url = 'jdbc:postgresql://127.0.0.1:' . pool_port() . '/app?prepareThreshold=0';
					is(system(java_command('', '-cp', "$classes:/usr/share/java/postgresql.jar", 'Example', $url)), 0, '... and runs, through the pool');
				}
				next unless $text =~ /CuratorFrameworkFactory/;
				my ($classpath) = slurp_file("$top/$file") =~ /class path `([^`]+)`/ or die "$file names no class path";
				is(system(java_command('', '-cp', "$classes:$classpath", 'Example')), 0, '... and runs, with the class path that is said');
			}
		}
		pass('all examples were tried');
	};
}

# ---- the tutorial

my $directory = PostgreSQL::Test::Utils::tempdir('tutorial');
my (%session, $service, $demo);

sub session($name, $service = $name) { return $session{$name} ||= Zklock::Session->new(dsn => "service=$service", name => $name); }

sub sql_block($block)
{
	$block =~ s/^-- ([AB])(, which waited)?\n// or die "not a session: $block";
	my ($name, $waited) = ($1, $2);
	my $session = session($name);
	is(rows($session->finish), $1, "$name has what it waited for") if $waited && $block =~ s/^--> (.*)\n//;
	foreach my $pair (statements($block))
	{
		my ($sql, @said) = @$pair;
		my $what = words("$name: $sql");
		if ("@said" eq '> waits')
		{
			$session->query_start($sql);
			my $waiting = 'SELECT count(*) FROM zk_locks WHERE node IS NOT NULL AND state = \'waiting\' AND pid = ' . $session->pid;
			wait_until { session("look at $name", $name)->query($waiting) } "$what to wait";
			pass("$what: waits");
		}
		elsif ((my $expected = join("\n", map { s/^> //r } @said)) =~ s/^soon: //)
		{
			wait_until { rows($session->query($sql)) eq $expected } "$what to give $expected";
			pass("$what: soon");
		}
		else { run_statement($session, $sql, @said); }
	}
	return;
}

sub shell($command)
{
	my ($out, $err) = ('', '');
	my $source = defined $demo ? ". $demo/env; " : '';
	IPC::Run::run([ 'sh', '-c', "$source$command" ], '<', \undef, '>', \$out, '2>', \$err, init => sub { chdir $directory });
	is($?, 0, $command) or diag($out, $err);
	return $out;
}

sub read_line
{
	local $SIG{ALRM} = sub { die "the service says nothing\n" };
	alarm(Zklock::Util::default_timeout());
	chomp(my $line = readline($service->{out}));
	alarm(0);
	return $line;
}

sub sh_block($block)
{
	foreach my $line (split /\n/, $block)
	{
		if ($line =~ /^make demo-shell/)
		{
			my $printed = shell("$top/test/demo/demo --shell </dev/null");
			($demo) = $printed =~ m{^in each terminal, first +\. (\S+)/env$}m or die "no demo: $printed";
			%ENV = (%ENV, slurp_file("$demo/env") =~ /(\w+)=(\S+)/g);
		}
		elsif ($line =~ m{^\. /tmp/zklock-demo\.X+/env$}) { ok(-r "$demo/env", $line); }
		elsif ($line =~ /^java (\S+) Service/)
		{
			$service = Zklock::Process->new(name => 'service', log => "$directory/service.log", pipes => 1, dir => $directory,
				argv => [ 'java', '-XX:TieredStopAtLevel=1', $1, 'Service', $ENV{ZOOKEEPER} ]);
		}
		elsif ($line =~ /^# the service: Enter/) { print { $service->{in} } "\n"; }
		elsif ($line =~ /^# /) { next; }
		elsif ($line =~ /^#> (.*)/) { is($service ? read_line() : '', $1, "terminal: $1") unless $1 =~ /^\[/; }
		elsif ($line =~ m{^\$DEMO/zk})
		{
			# Another thread of ZooKeeper's program says that it is connected, in the midst of the answer.
			my ($expected) = $block =~ /^#> (.*)/m;
			like(shell($line) =~ s/\n(?:WATCHER::|WatchedEvent [^\n]*)\n//gr, qr/^\Q$expected\E$/m, "... prints $expected");
		}
		elsif ($line =~ m{^test/demo/demo --stop}) { like(shell("$top/$line"), qr/^stopped and removed/, 'the demo has ended'); }
		else { shell($line); }
	}
	return;
}

subtest 'the tutorial' => sub {
	local %ENV = (%ENV, TMPDIR => PostgreSQL::Test::Utils::tempdir('demo'));
	delete @ENV{ grep { /^PG/ && $_ ne 'PG_CONFIG' && !/^PG_/ } keys %ENV };
	foreach my $block (blocks("$top/doc/tutorial.md"))
	{
		my ($language, $text) = @$block;
		if    ($language eq 'sql')  { sql_block($text); }
		elsif ($language eq 'sh')   { %session = () if $text =~ /--stop/; sh_block($text); }
		elsif ($language eq 'java') { append_to_file("$directory/Service.java", $text); }
		else                        { fail("a block of the language \"$language\""); }
	}
	ok(!-d $demo, 'nothing is left of it');
};

END
{
	my $status = $?;
	system("$top/test/demo/demo", '--stop') if defined $demo && -d $demo;
	$? = $status;
}
$pool->stop;
$server->set_conf('zklock.elections' => '');
done_clean($zk, $server);
