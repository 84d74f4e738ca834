# Copyright (c) 2026, zklock contributors
#
# The blocks of doc/recipes.md run as they are written, on two servers, with pg_cron where the distribution has it, and
# Patroni. Django and Alembic run in sql/programs.pl.
#
# Clients connect as the role "batch", by the service file of the page. Only addresses and directories are others.

use Zklock::Test;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Zklock::Process;
use Zklock::Run;
use Zklock::Session;
use Zklock::Util qw(blocks on_failure secret tail);

my $top       = abs_path(dirname(__FILE__) . '/../../..');
my $directory = PostgreSQL::Test::Utils::tempdir('recipes');
my ($bindir, $sharedir) = map { chomp(my $dir = `pg_config --$_`); $dir } qw(bindir sharedir);
my @conf = ('search_path = \'"$user", public, zklock\'');
my $cron = -e "$sharedir/extension/pg_cron.control";
push @conf, "shared_preload_libraries = 'pg_cron,zklock'", 'cron.use_background_workers = on' if $cron;
my ($zk, $a, $b) = cast('a b', conf => \@conf, a => { conf => [ @conf, "zklock.elections = '/jobs/leader'" ] });

# The page's only block that has this in it; none is left at the end.
my @blocks = blocks("$top/doc/recipes.md");
sub block($has)
{
	my @found = grep { $_->[1] =~ $has } @blocks;
	is(scalar @found, 1, "a block has $has");
	@blocks = grep { $_->[1] !~ $has } @blocks;
	return $found[0][1];
}

# What other documents have made: the role with its paths, privileges, procedures, and a table
sub made($file, $regex) { return map { $_->[1] =~ $regex } blocks("$top/$file"); }
my @made = (
	made('README.md', qr/^((?:CREATE|ALTER) ROLE batch .*;)$/m), made('doc/reference.md', qr/^(GRANT EXECUTE.*)/ms),
	# Midnight may come between two runs.
	(map { s/now\(\)/timestamptz '2026-11-22 03:00+00'/r } made('README.md', qr/^(CREATE PROCEDURE nightly_work.*)/ms)),
	'CREATE TABLE account (id int, balance int)', 'INSERT INTO account VALUES (7, 1000)', 'CREATE TABLE mails (what text)',
	made('doc/guide.md', qr/^(CREATE TABLE tokens .*;)$/m), block(qr/^CREATE TABLE reports/),
	'GRANT ALL ON ALL TABLES IN SCHEMA public TO batch');

# What a client of the server, and its home directory, are told
my $service = block(qr/^\[jobs\]/);
my %environment;
foreach my $server ($a, $b)
{
	my $home = "$directory/" . $server->name;
	mkdir $home;
	my $text = $service;
	is($text =~ s/^host=\S+$/'host=' . $server->host . "\nport=" . $server->port/em, 1, 'the service names a host');
	append_to_file("$home/.pg_service.conf", $text);
	$environment{ $server->name } = { HOME => $home, PGSERVICE => 'jobs', PGSERVICEFILE => "$home/.pg_service.conf",
		PATH => ($ENV{ZKLOCK_STAGE} // '') . "$bindir:$bindir:/usr/bin:/bin" };
	$server->value($_) foreach @made;
}

sub file($name, $text)
{
	append_to_file("$directory/$name", $text);
	return "$directory/$name";
}

# A program of a client of the server
sub program($server, $name, @argv)
{
	local %ENV = (%ENV, %{ $environment{ $server->name } });
	return Zklock::Process->new(name => "$name-" . $server->name, argv => \@argv, dir => $directory);
}

sub says($program) { return slurp_file($program->log_file); }

# A line as cron runs it, or a shell, in the page's environment alone
sub run_line($server, $line)
{
	my %env = %{ $environment{ $server->name } };
	delete $env{PGSERVICEFILE};
	my %run;
	IPC::Run::run([ 'env', '-i', "--chdir=$directory", (map { "$_=$env{$_}" } sort keys %env), 'sh', '-c', $line ],
		'<', \undef, '>', \$run{out}, '2>', \$run{err});
	$run{status} = $? >> 8;
	return \%run;
}

subtest 'pg_cron' => sub {
	my ($schedule) = block(qr/cron\.schedule/);
	plan skip_all => "there is no pg_cron for this release in $sharedir" unless $cron;
	is($schedule =~ s/'0 3 \* \* \*'/'* * * * *'/, 1, 'the job runs at three');
	foreach my $server ($a, $b)
	{
		$server->value('CREATE EXTENSION pg_cron');
		like($server->value($schedule), qr/^\d+$/, 'now each minute, on server ' . $server->name);
	}
};

subtest 'lines of a crontab and of systemd, and those for flock' => sub {
	$a->wait_value(q{SELECT zk_is_leader('/jobs/leader')}, 't');
	my $crontab = block(qr/^PGSERVICE=jobs$/m);
	my ($page)  = slurp_file("$top/doc/recipes.md");
	my %says = (
		'/jobs/nightly' => qr/^CALL$/m,
		'/jobs/sync'    => qr/^in sync/m,
		'/batch/slots'  => qr/^one of four$/m,
		'/jobs/leader'  => qr/^on the leader, term \d+$/m);
	my @commands = ($crontab =~ /^(?:\S+ ){4}\S+ +(zklock-run .*)/mg, block(qr/^ExecStart/m) =~ m{^ExecStart=\S+/(zklock-run .*)}m);
	is(scalar @commands, 5, 'there are some');
	foreach my $command (@commands)
	{
		my ($path) = $command =~ m{ (/\w+/\w+) -- };
		unlike($command, qr/%/, 'cron would take this for the end of a line');
		like(run_line($a, $command)->{out}, $says{$path}, $command);
	}
	my ($nightly) = grep { /--claim/ } @commands;
	is(run_line($b, $nightly)->{status}, 1, 'the day is claimed');
	foreach my $script (qw(sync report))
	{
		chmod 0755, file("$script.sh", "#!/bin/sh\necho $script under \$ZKLOCK_PATH\n");
	}
	my @rows = $page =~ /^\| `flock [^|]*\| `(zklock-run [^`]*)` \|$/mg;
	is(scalar @rows, 3, 'there is a table for flock');
	is_deeply([ slurp_file("$top/README.md") =~ /^(zklock-run .*?)\s+#/mg ], [ $rows[0] ], 'of which README.md has the first line');
	like(run_line($a, $_)->{out}, qr{^(?:sync|report) under /jobs/sync$}m, $_) foreach @rows;
	my $holder = start($b, ['/jobs/sync'], 'cat');
	$holder->wait_holds('/jobs/sync');
	is(run_line($a, $rows[0])->{status}, 1, 'who does not wait finds it taken by the other server');
	$holder->end;
};

# One of the two serves; if it loses the lock the other one does, and then the first one again.
sub one_serves($name, $path, $suffix, $program, @interpreter)
{
	my $file = file("$name.$suffix", $program);
	my ($first, $second) = map { program($_, $name, @interpreter, $file) } $a, $b;
	my $lines = sub ($service) { return scalar(() = says($service) =~ /^works$/mg); };
	wait_until { $lines->($first) > 1 || $lines->($second) > 1 } 'one to serve';
	my ($one, $server, $other, $elsewhere) = $lines->($first) ? ($first, $a, $second, $b) : ($second, $b, $first, $a);
	wait_until { $zk->children($path) == 2 } 'the other one to wait';
	is($lines->($other), 0, 'one of the two serves');
	is($elsewhere->lock_count("path = '$path' AND state = 'waiting' AND pid IN (SELECT pid FROM pg_stat_activity WHERE usename = 'batch')"),
		1, 'the other one waits');
	my ($node) = map { $_->{node} } $server->locks("path = '$path' AND state = 'held'");
	$zk->shell->delete("$path/$node");
	wait_until { $lines->($other) > 1 } 'the other one to serve';
	wait_until { says($one) =~ /lost/ } 'the first one to notice';
	wait_until { $zk->children($path) == 2 } 'it to stand again';
	my $before = $lines->($one);
	$other->kill9;
	wait_until { $lines->($one) > $before } 'it to serve again, since the other one was killed';
	$one->kill9;
	wait_until { !$zk->children($path) } 'all to be gone';
	return pass('each had its turn');
}

subtest 'a service in Python' => sub {
	one_serves('mailer', '/jobs/mailer', 'py', block(qr/^def serve/m) . "\n\ndef work():\n    print('works', flush=True)\n\n\nserve(work)\n", '/usr/bin/python3');
};

subtest 'a service in Node' => sub {
	my $program = block(qr/^async function serve/m) . "\nserve(async () => console.log('works'));\n";
	my ($said, $errors) = run_command([ qw(npm install --no-audit --no-fund --fetch-retries=1 --fetch-timeout=60000 --prefix), $directory, 'pg@8' ]);
	if ($errors =~ /\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT)\b/)
	{
		diag("NOT TESTED: the npm registry cannot be reached\n$errors");
		plan skip_all => 'the npm registry cannot be reached';
	}
	# The driver knows no services.
	foreach my $server ($a, $b)
	{
		$environment{ $server->name } = { %{ $environment{ $server->name } },
			PGHOST => $server->host, PGPORT => $server->port, PGUSER => 'batch', PGDATABASE => 'postgres' };
	}
	one_serves('billing', '/jobs/billing', 'js', $program, 'node');
};

subtest 'workers on a queue' => sub {
	my $worker = file('worker.py', block(qr/^def work_off/m) =~ s/'10s'/'1s'/r . <<"END");


import os
def handle(cursor, data):
    cursor.execute("INSERT INTO mails VALUES (%s)", (data.decode(),))
    if data == b"5" and not os.path.exists("died"):
        open("died", "w")
        os._exit(1)

work_off(handle)
END
	my $session = $b->session(user => 'batch');
	$session->query("SELECT zk_queue_offer('/batch/mail', convert_to('$_', 'UTF8'))") foreach 1 .. 20;
	my @workers = map { program($a, "worker$_", '/usr/bin/python3', $worker) } 1 .. 3;
	$_->wait_end(60) foreach @workers;
	is_deeply([ sort map { $_->status_text } @workers ], [ 'exit code 0', 'exit code 0', 'exit code 1' ], 'one of three dies')
	  or diag map { says($_) } @workers;
	is($a->value('SELECT count(*) || \' \' || count(DISTINCT what) FROM mails'), '20 20', 'each element is done once');
	is($session->query(q{SELECT count(*) FROM zk_queue_peek('/batch/mail') AS data WHERE data IS NOT NULL}), 0, 'none is left');
};

subtest 'a rate' => sub {
	chomp(my $line = block(qr{^zklock-run .*/batch/rate}));
	# Wherever else it is looked at, the clock may have been set.
	chmod 0755, file('call.sh', "#!/bin/sh\nread up idle </proc/uptime\necho \$up >>calls\n");
	my @calls = map { program($_ % 2 ? $a : $b, "call$_", 'sh', '-c', $line) } 1 .. 10;
	foreach my $call (@calls)
	{
		$call->wait_end(undef);
		is($call->status_text, 'exit code 0', 'a call is made') or diag says($call);
	}
	my @times = sort { $::a <=> $::b } split ' ', slurp_file("$directory/calls");
	is(scalar @times, 10, 'all calls were made');
	is(scalar(grep { $times[ $_ + 4 ] - $times[$_] < 0.98 } 0 .. $#times - 4), 0, 'never five in a second') or diag "@times";
	my $session = $a->session(user => 'batch');
	foreach my $statement (split /(?<=;)/, block(qr{^SELECT zk_xact_semaphore_acquire\('/batch/rate'}m) =~ s/--.*//gr)
	{
		ok($session->try($statement)->{ok}, $statement =~ s/^\s+//r) if $statement =~ /\S/;
	}
};

subtest 'an upload' => sub {
	my $reports = "$directory/reports";
	mkdir $reports;
	my $text = block(qr/^# upload\.sh/m);
	my ($line) = $text =~ /^# .*: (zklock-run .*)$/m;
	is($text =~ s{/srv/reports}{$reports}, 1, 'the files have a directory');
	chmod 0755, file('upload.sh', $text);
	my $current = sub { return $a->value(q{SELECT file FROM reports WHERE name = 'account'}); };
	is(run_line($a, $line)->{status}, 0, 'one is made');
	my $first = $current->();
	is(slurp_file("$reports/$first"), "7,1000\n", 'a file has the data');
	# It takes the lock anew.
	$a->wait_value(q{SELECT count(*) FROM zk_locks}, 0);
	is(run_line($a, $line)->{status}, 0, 'another one');
	my $second = $current->();
	isnt($second, $first, 'has a file of its own');
	my ($token) = $first =~ /(\d+)/;
	my $late = run_line($a, "ZKLOCK_TOKEN=$token ./upload.sh");
	is($late->{status}, 3, 'a late one fails');
	like($late->{err}, qr/ERROR: .*fence|ERROR: .*token/i, 'at the fence');
	is($current->(), $second, 'and changes nothing');
};

subtest 'Patroni' => sub {
	my $conf = block(qr/^zookeeper:/);
	plan skip_all => 'Patroni is not installed' unless -x '/usr/bin/patroni';
	my $hosts = $zk->connect_string;
	my $auth = secret("$directory/auth", "digest:zklock:secret\n");
	is($conf =~ s/'zk1\S+ \S+ \S+'/'$hosts'/, 1, 'hosts');
	is($conf =~ s{zk1\S+:2181(?=/zklock)}{$hosts}, 1, 'the same with a chroot');
	is($conf =~ s{/etc/zklock/auth}{$auth}, 1, 'credentials');
	my ($port, $rest) = map { PostgreSQL::Test::Cluster::get_free_port() } 1, 2;
	my $stage = join '', map { s/^(\S+) = '(.*)'$/    $1: '$2'\n/r } Zklock::Server::stage_conf($ENV{ZKLOCK_STAGE});
	$conf =~ s/^  parameters:\n/  listen: 127.0.0.1:$port
  connect_address: 127.0.0.1:$port
  data_dir: $directory\/patroni
  bin_dir: $bindir
  authentication:
    superuser: {username: postgres}
    replication: {username: postgres}
  parameters:
    unix_socket_directories: $directory
$stage/m or die;
	my $file = file('patroni.yml', <<"END" . $conf);
scope: pay
name: db1
restapi: {listen: '127.0.0.1:$rest', connect_address: '127.0.0.1:$rest'}
bootstrap:
  dcs: {loop_wait: 1, ttl: 20, retry_timeout: 5}
  initdb: [auth: trust, encoding: UTF8, no-sync]
  pg_hba: [local all all trust, host all all 127.0.0.1/32 trust, host replication all 127.0.0.1/32 trust]
END
	my $shell = $zk->shell;
	$shell->create('/zklock');
	my $patroni = Zklock::Process->new(name => 'patroni', argv => [ '/usr/bin/patroni', $file ]);
	on_failure('Patroni', sub { return tail($patroni->log_file, 40); });
	my $dsn = "host=127.0.0.1 port=$port user=postgres dbname=postgres";
	my $leader = sub { return eval { $shell->get('/service/pay/leader') } // ''; };
	wait_until { $leader->() eq 'db1' } 'Patroni to lead';
	my $session;
	wait_until { $session = eval { Zklock::Session->new(dsn => $dsn, name => 'patroni') } } 'its server';
	wait_until { $session->query('SELECT NOT pg_is_in_recovery()') eq 't' } 'its server to be the primary';
	$session->query('CREATE EXTENSION zklock');
	wait_until { $session->query(q{SELECT state FROM zk_session}) eq 'connected' } 'zklock to be connected';
	is($session->query(q{SELECT zk_lock('/pay/lock', '1min')}), 't', 'both share the ensemble');
	my $node = $session->query('SELECT node FROM zk_locks');
	is_deeply([ sort $zk->children('/') ], [ sort qw(zookeeper zklock service batch jobs), grep { /^zklock-/ } $zk->children('/') ],
		'each with paths of its own');
	ok(!eval { $shell->delete("/zklock/pay/lock/$node"); 1 }, 'who has no credentials of zklock cannot delete its nodes');
	like($@, qr/NoAuth/, '... since ZooKeeper refuses it');
	is($session->query(q{SELECT current_setting('cluster_name') || ' ' || server FROM zk_contenders('/pay/lock')}),
		'pay db1', 'Patroni has named the cluster, and the page the server');

	my $holds = sub { return $session->query(q{SELECT state FROM zk_locks WHERE path = '/pay/lock'}); };
	my ($worker) = $session->query(q{SELECT worker_pid FROM zk_session});
	$session->query('SELECT pg_terminate_backend(worker_pid) FROM zk_session');
	wait_until { $session->query("SELECT state = 'connected' AND worker_pid <> $worker FROM zk_session") eq 't' } 'another worker';
	is($holds->(), 'held', 'the lock outlives zklock\'s worker');
	is($leader->(), 'db1', 'and Patroni does not care');

	# A quick worker might resume the session while it is being ended.
	my ($id, $pid) = split /\|/, $session->query('SELECT session_id, worker_pid FROM zk_session');
	freeze($pid);
	$shell->expire_session($id);
	thaw($pid);
	wait_until { $holds->() eq 'lost' } 'the end of zklock\'s session';
	is($leader->(), 'db1', 'does not concern Patroni either');
	is($session->query(q{SELECT zk_unlock('/pay/lock')}), 'f', 'the lock is lost');
	is($session->query(q{SELECT zk_lock('/pay/lock', '1min')}), 't', 'and taken anew');

	$patroni->kill9;
	wait_until { $leader->() eq '' } 'the leader key to go';
	is($holds->(), 'held', 'the lock outlives Patroni');
	$patroni = Zklock::Process->new(name => 'patroni', argv => [ '/usr/bin/patroni', $file ]);
	wait_until { $leader->() eq 'db1' } 'Patroni to come back';
	is($holds->(), 'held', '... and its return');
	$session->disconnect;
	$patroni->signal('TERM');
	ok($patroni->wait_end(60), 'Patroni ends, and its server with it');
	$shell->add_auth('digest', 'zklock:secret');
	wait_until { !$zk->children('/zklock/pay/lock') } 'the lock to be free';
	$shell->delete('/zklock', recursive => 1);
	$shell->delete('/service', recursive => 1);
};

subtest 'pg_cron has run the job once' => sub {
	plan skip_all => 'there is no pg_cron for this release' unless $cron;
	$_->wait_log(qr/nightly: (?:runs here|the day has been claimed before)/, 0, 120) foreach $a, $b;
	is(scalar(() = join('', map { $_->log_since(0) } $a, $b) =~ /nightly: runs here/g), 1, 'on one of the servers');
	$_->value(q{SELECT cron.unschedule('nightly')}) foreach $a, $b;
};

block(qr/\Q$_\E/) foreach 'class Command(migrate.Command)', 'def run_migrations_online';    # sql/programs.pl
is_deeply(\@blocks, [], 'all blocks of the page have been tried');
$a->set_conf('zklock.elections' => '');
done_clean($zk, $a, $b);
