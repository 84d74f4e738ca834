# Copyright (c) 2026, zklock contributors
#
# However the worker ends, it does not crash the database server.
#
# Threads of the client library run until the process is gone. exit() would run the destructors and atexit functions
# of every library meanwhile, which free what a thread may be using; a crash of the worker makes the postmaster end
# all sessions. So the worker leaves without exit(). Here a library is loaded (test/preload/slow_exit.c) whose destructor and
# atexit function take long and free what the threads use all the time.

use Zklock::Test;
use POSIX ();
use PostgreSQL::Test::Utils;

plan skip_all => 'there is no build with faults (ZKLOCK_FAULT_STAGE)' unless $ENV{ZKLOCK_FAULT_STAGE};

# A process without a parent becomes a child of the nearest process that asks for that, which learns how it ends.
sub adopt_orphans
{
	my %prctl = (x86_64 => 157, aarch64 => 167);
	my $number = $prctl{ (POSIX::uname())[4] } // return 0;
	return syscall($number, 36, 1, 0, 0, 0) == 0;
}

my $adopts  = adopt_orphans();    # servers, and what is left of them
my $rounds  = 5;
my $dir     = PostgreSQL::Test::Utils::tempdir();
my $library = "$dir/slow_exit.so";
system_or_bail('gcc', '-shared', '-fPIC', '-o', $library, 'test/preload/slow_exit.c', '-ldl');
local $ENV{SLOW_EXIT_LOG}  = "$dir/exits";
local $ENV{ZKLOCK_PRELOAD} = join(' ', grep { defined } $ENV{ZKLOCK_PRELOAD}, $library);

my ($zk, @started) = cast('a b c d', proxied => 'a b c d', timeout => '30s', faults => '');
my @servers = splice(@started, 4);
my %proxy;
@proxy{ map { $_->name } @servers } = @started;
$_->value('CREATE TABLE stop (done int)') foreach @servers;

my $traffic = q{
	DO $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM stop) LOOP
			PERFORM zk_lock('/e/%1$s');
			PERFORM zk_lock('/e/%2$s');
			-- Only one session of this server may be here.
			IF NOT pg_try_advisory_lock(1) THEN
				RAISE EXCEPTION 'not exclusive';
			END IF;
			PERFORM pg_advisory_unlock(1);
			PERFORM zk_unlock('/e/%2$s');
			PERFORM zk_unlock('/e/%1$s');
			PERFORM pg_sleep(0.002);
		END LOOP;
	END $$};

my $timeout = 30;

# Each makes the worker of a server end.
my %way = (
	'SIGTERM' => sub { $_[0]->value('SELECT pg_terminate_backend(' . $_[0]->worker_pid . ')'); },
	'an ERROR' => sub { $_[0]->set_faults('fail-requests'); },
	'FATAL' => sub { $_[0]->set_faults('fail-fatally'); },
	'SIGTERM, with changed settings' => sub {
		my $worker = $_[0]->worker_pid;
		$_[0]->set_conf('zklock.session_timeout' => --$timeout . 's');
		$_[0]->value("SELECT pg_terminate_backend($worker)");
	},
	'a malformed answer' => sub {
		$proxy{ $_[0]->name }->forge(op => 'create2', path => '^/e/', body => pack('l>', 0));
	});

my @ids = map { $_->session_id } @servers;
my @sessions;
foreach my $server (@servers)
{
	my $name = $server->name;
	push @sessions, map { $server->session->query_start(sprintf $traffic, $name . $_, $name) } 1, 2;
}

foreach my $name (sort keys %way)
{
	subtest "ended by $name, $rounds times on each server" => sub {
		foreach my $round (1 .. $rounds)
		{
			my @old = map { [ $_, $_->worker_pid, $_->log_mark ] } @servers;
			foreach my $server (@servers) { $way{$name}->($server); }
			foreach my $old (@old)
			{
				my ($server, $pid, $mark) = @$old;
				$server->wait_log(qr/zklock worker" \(PID $pid\) (?:exited|was terminated).*/, $mark);
				$server->set_faults('') if $name =~ /ERROR|FATAL/;
			}
			foreach my $old (@old)
			{
				my ($server, $pid, $mark) = @$old;
				$server->wait_new_worker($pid);
				$server->wait_session;
				like($server->log_since($mark), qr/zklock worker" \(PID $pid\) exited with exit code 1\n/,
					$server->name . ": the worker has left with exit code 1");
			}
		}
	};
}

subtest 'sessions have noticed nothing' => sub {
	$_->value('INSERT INTO stop VALUES (1)') foreach @servers;
	foreach my $s (@sessions)
	{
		my $result = $s->result;
		ok($result->{ok}, $s->name . ' has seen no error') or diag $result->{error};
		$s->disconnect;
	}
	Zklock::Server->assert_clean($zk, \@servers, map { ("/e/$_", "/e/${_}1", "/e/${_}2") } map { $_->name } @servers);
	is_deeply([ map { $_->session_id } @servers ], \@ids, 'all these workers have had one ZooKeeper session each');
};

subtest 'ended by the death of the postmaster' => sub {
	plan skip_all => 'orphans cannot be adopted on this kind of machine' unless $adopts;
	foreach my $server (@servers)
	{
		my ($postmaster, $worker) = ($server->postmaster_pid, $server->worker_pid);
		$server->kill9;
		waitpid($postmaster, 0);    # else it looks alive to who stops the server in the end
		wait_until { waitpid($worker, POSIX::WNOHANG()) == $worker } 'the worker to end';
		is($?, 1 << 8, $server->name . ': the worker has left with exit code 1');
	}
};

unlike($_->log_since(0), qr/was terminated by signal/, $_->name . ': no process was ended by a signal') foreach @servers;
is(-e $ENV{SLOW_EXIT_LOG} ? slurp_file($ENV{SLOW_EXIT_LOG}) : '', '', 'no worker has run a destructor while threads ran');
done_testing;
