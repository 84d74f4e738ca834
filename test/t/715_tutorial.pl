# Copyright (c) 2026, zklock contributors
#
# doc/tutorial.md: each command in it runs, in that order, and gives what it says.

use Zklock::Test;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run;
use PostgreSQL::Test::Utils;
use Zklock::Process;
use Zklock::Session;

my $top       = abs_path(dirname(__FILE__) . '/../..');
my $directory = PostgreSQL::Test::Utils::tempdir('tutorial');
my $tutorial  = slurp_file("$top/doc/tutorial.md");
$ENV{TMPDIR} = PostgreSQL::Test::Utils::tempdir('demo');
delete @ENV{ grep { /^PG/ && $_ ne 'PG_CONFIG' && !/^PG_/ } keys %ENV };
my (%session, $service, $demo);

sub session($name) { return $session{$name} ||= Zklock::Session->new(dsn => "service=$name", name => $name); }

# A statement, and what the tutorial says of it
sub statement($name, $sql, @expected)
{
	my $what = join(' ', split ' ', "$name: $sql");
	my $expected = join("\n", @expected);
	$expected =~ s/ \| /|/g;
	my $session = session($name);
	if ($expected eq 'waits')
	{
		$session->query_start($sql);
		my $pid  = $session->pid;
		my $look = $session{"look at $name"} ||= Zklock::Session->new(dsn => "service=$name", name => "look at $name");
		wait_until { $look->query("SELECT count(*) FROM zk_locks WHERE pid = $pid AND state = 'waiting' AND node IS NOT NULL") } "$what to wait";
		pass("$what: waits");
	}
	elsif ($expected =~ s/^soon: //)
	{
		wait_until { $session->query($sql) eq $expected } "$what to give $expected";
		pass("$what: soon");
	}
	elsif ($expected =~ /^ERROR (\w+)$/) { is($session->try($sql)->{sqlstate}, $1, $what); }
	else
	{
		my $result = $session->try($sql);
		ok($result->{ok}, $what) or diag($result->{message});
		is($result->{text}, $expected, '... gives ' . ($expected =~ s/\n/, /gr)) if @expected;
	}
	return;
}

sub sql_block($block)
{
	my ($head, @lines) = split /\n/, $block;
	my ($name, $waited) = $head =~ /^-- ([AB])(, which waited)?$/ or die "not a session: $head";
	my ($sql, @expected, $quoted) = ('');
	my $run = sub {
		if ($waited) { is(session($name)->finish, $expected[0], "$name has what it waited for"); $waited = 0; }
		elsif ($sql ne '') { statement($name, $sql, @expected); }
		($sql, @expected) = ('');
		return;
	};
	foreach my $line (@lines)
	{
		if ($line =~ /^--> (.*)/) { push @expected, $1; next; }
		$run->() if @expected || ($sql =~ /;\s*$/ && !$quoted);
		$quoted = !$quoted if (() = $line =~ /\$\$(?!\/)/g) % 2;
		$sql .= "$line\n";
	}
	$run->();
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
		elsif ($line =~ /^java Service/)
		{
			$service = Zklock::Process->new(name => 'service', log => "$directory/service.log", pipes => 1, dir => $directory,
				argv => [ 'java', '-XX:TieredStopAtLevel=1', 'Service', $ENV{ZOOKEEPER} ]);
		}
		elsif ($line =~ /^# the service: Enter/) { print { $service->{in} } "\n"; }
		elsif ($line =~ /^# /) { next; }
		elsif ($line =~ /^#> (.*)/) { is($service ? read_line() : '', $1, "terminal: $1") unless $1 =~ /^\[/; }
		elsif ($line =~ m{^\$DEMO/zk}) { my ($expected) = $block =~ /^#> (.*)/m; like(shell($line), qr/^\Q$expected\E$/m, "... prints $expected"); }
		elsif ($line =~ m{^test/demo/demo --stop}) { like(shell("$top/$line"), qr/^stopped and removed/, 'the demo has ended'); }
		else { shell($line); }
	}
	return;
}

while ($tutorial =~ /^```(\w*)\n(.*?)^```$/msg)
{
	my ($language, $block) = ($1, $2);
	if    ($language eq 'sql')  { sql_block($block); }
	elsif ($language eq 'sh')   { %session = () if $block =~ /--stop/; sh_block($block); }
	elsif ($language eq 'java') { append_to_file("$directory/Service.java", $block); }
	else                        { fail("a block of the language \"$language\""); }
}
ok(!-d $demo, 'nothing is left of it');

END
{
	my $status = $?;
	system("$top/test/demo/demo", '--stop') if defined $demo && -d $demo;
	$? = $status;
}
done_testing;
