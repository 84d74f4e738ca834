# Copyright (c) 2026, zklock contributors
#
# The examples of the documents run as they are written, in the order in which they stand. (The
# tutorial has a test of its own, and so have README.md's commands for a role, 007.)
#
# In SQL a comment behind a statement that begins with "true" or "false" is its result; "--> words" is
# one as well. What begins with neither may be anything but false. Settings are accepted by a server,
# Java is compiled, and the service that shares a lock with SQL runs.

use Zklock::Test;
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Zklock::JavaPeer;

my $top    = dirname(__FILE__) . '/../..';
my ($zk, $server) = cast('a', conf => [ 'max_prepared_transactions = 10', "zklock.elections = '/jobs/leader'" ]);

# Needs what the tests do not have: pg_cron.
my $elsewhere = qr/cron\.schedule/;

# Blocks of a document: [language, text]
sub blocks($file)
{
	my $text = slurp_file("$top/$file") =~ s/^  (?=```|\S.*;$)//mgr;
	my @words = $text =~ /^```(\w*)\n(.*?)^```$/msg;
	return map { [ @words[ 2 * $_, 2 * $_ + 1 ] ] } 0 .. $#words / 2;
}

# Statements of a block, each with the comment behind it
sub statements($sql)
{
	my (@statements, $quoted);
	my $statement = '';
	foreach my $line (split /\n/, $sql)
	{
		$quoted = !$quoted if (() = $line =~ /\$\$/g) % 2;
		if (!$quoted && $line =~ /^(.*;)(?:\s+--\s*(.*))?$/)
		{
			push @statements, [ "$statement$1", $2 // '' ];
			$statement = '';
		}
		elsif ($line !~ /^\s*--/ || $statement ne '') { $statement .= "$line\n"; }
	}
	is($statement =~ s/\s//gr, '', 'the block ends with a statement');
	return @statements;
}

sub run_sql($session, $sql)
{
	my $token;
	foreach my $pair (statements($sql))
	{
		my ($statement, $comment) = @$pair;
		next if $statement =~ $elsewhere;
		# A variable of psql's
		$statement =~ s/:'token'/"'" . $session->query(q{SELECT coalesce(max(token), 0) + 1 FROM zk_fences}) . "'"/e;
		# README.md uses it before it says how it is made.
		$session->query('DROP EXTENSION zklock') if $statement =~ /^CREATE EXTENSION/;
		my $result = $session->try($statement);
		my $what   = join(' ', split ' ', $statement);
		ok($result->{ok}, $what) or diag($result->{error});
		next unless $result->{ok} && @{ $result->{rows} };
		if    ($comment =~ /^true\b/)    { is($result->{text}, 't', '... is true'); }
		elsif ($comment =~ /^false\b:/)  { is($result->{text}, 'f', '... is false'); }
		elsif ($comment =~ /^-*> *(.*)/) { is($result->{text} =~ s/\|/ | /gr, $1, "... is $1"); }
		else                             { isnt($result->{text}, 'f', '... is not false'); }
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
sub compile($name, $code)
{
	my $directory = PostgreSQL::Test::Utils::tempdir();
	my $imports = join('', map { "import $_;\n" } qw(java.sql.* java.util.concurrent.TimeUnit java.util.concurrent.TimeoutException
		  org.apache.curator.framework.* org.apache.curator.framework.recipes.locks.* org.apache.curator.retry.* org.apache.zookeeper.data.Stat));
	$imports .= "$1\n" while $code =~ s/^(import .*;)$//m;
	my $class = $code =~ /^class /m ? "$code\nclass Example {}\n" : <<"END";
class Example {
	static void run(Connection connection, String[] paths) throws Exception { $code }
	public static void main(String[] args) throws Exception { run(null, args); }
}
END
	append_to_file("$directory/Example.java", $imports . $class);
	is(system('javac', '-nowarn', '-proc:none', '-cp', Zklock::JavaPeer::classpath(), '-d', $directory, "$directory/Example.java"),
		0, "$name: Java compiles");
	return $directory;
}

foreach my $file (map { s{^\Q$top\E/}{}r } "$top/README.md", glob("$top/doc/*.md"))
{
	next if $file =~ /tutorial/;
	subtest $file => sub {
		my $session = $server->session;
		$session->query($_)
		  foreach 'DROP SCHEMA public CASCADE', 'CREATE SCHEMA public', 'CREATE EXTENSION zklock',
		  'CREATE TABLE account (id int PRIMARY KEY, balance int)', 'INSERT INTO account VALUES (7, 1000)';
		$session->query("DO 'BEGIN CREATE ROLE $_; EXCEPTION WHEN duplicate_object THEN END'") foreach qw(batch pooled);
		# The lock that is taken away there
		my $holder = $server->session;
		$holder->query(q{SELECT zk_lock('/pay/lock')}) if $file eq 'doc/operations.md';
		foreach my $block (blocks($file))
		{
			my ($language, $text) = @$block;
			if    ($language eq 'sql') { run_sql($session, $text); }
			elsif ($language eq '')    { check_settings($session, $text); }
			elsif ($language eq 'java')
			{
				$text =~ s/"zk1[^"]*"/'"' . $zk->connect_string . '"'/e;
				my $classes = compile($file, $text);
				is(system('java', '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn', '-cp', "$classes:" . Zklock::JavaPeer::classpath(), 'Example'),
					0, '... and runs') if $text =~ /CuratorFrameworkFactory/;
			}
		}
		pass('all examples were tried');
	};
}

$server->set_conf('zklock.elections' => '');
done_clean($zk, $server);
