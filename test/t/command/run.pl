# Copyright (c) 2026, zklock contributors
#
# zklock-run runs a command while it has a lock, passes on how that ends, and leaves nothing behind.

use Zklock::Test;
use Zklock::Run;

my ($zk, $a, $b) = cast('a b', conf => ["zklock.elections = '/t/leader'"]);
my $shell = $zk->shell;

subtest 'a command has the lock while it runs' => sub {
	my $run = run($a, ['/t/run'], 'sh', '-c', 'echo $ZKLOCK_PATH $ZKLOCK_TOKEN; exit 3');
	is($run->{status}, 3, 'its exit status is passed on');
	like($run->{out}, qr{^/t/run [1-9]\d*$}, 'it knows the path and the token');
	is($run->{err}, '', 'there is nothing else to say');

	my $first = start($a, ['/t/run'], 'cat');
	$first->wait_holds('/t/run');
	is(run($b, [ '--try', '/t/run' ], 'true')->{status}, 1, 'elsewhere it is taken meanwhile');
	is(run($b, [ '-n', '-E', 9, '/t/run' ], 'true')->{status}, 9, 'with the exit status that was asked for');
	is(run($b, [ '-w', '100ms', '/t/run' ], 'true')->{status}, 1, 'and when the time to wait has passed');
	my $told = run($a, [ '--try', '--verbose', '/t/run' ], 'true');
	like($told->{err}, qr{"/t/run" is held by process \d+ of server \S+ \(user ".+", application "zklock-run"\) since \d},
		'--verbose says who has it');

	# Its server may keep the node of a lock that it takes again and again, for nobody.
	$first->close_input;
	is($first->status, 0, 'the command ends');
	$a->set_conf('zklock.keep_idle' => '1h');
	wait_until { run($a, ['/t/run'], 'true'); $zk->children('/t/run') } 'a node to be kept';
	$first = start($a, ['/t/run'], 'cat');
	$first->wait_holds('/t/run');
	is($b->value("SELECT granted IS NULL FROM zk_contenders('/t/run')"), 't', 'elsewhere it is not known whether it is held');
	my $second = start($b, ['/t/run'], 'cat');
	$second->wait_says(qr{waiting for "/t/run".*"/t/run" is held by process}s, 'a wait of a second is reported, with who has it');
	$first->close_input;
	is($first->status, 0, 'the first one ends');
	$second->wait_holds('/t/run');
	$second->close_input;
	is($second->status, 0, 'and the second one has had it');
	$a->set_conf('zklock.keep_idle' => 0);
};

# It asks every half second; here the answer comes when the command has ended.
subtest 'a command ends while the server is being asked' => sub {
	my $gate = $a->session;
	$gate->query($_) foreach 'ALTER FUNCTION zk_lease_remaining(text) RENAME TO remaining', <<'END';
CREATE FUNCTION zk_lease_remaining(path text) RETURNS interval LANGUAGE sql
AS 'SELECT pg_advisory_xact_lock_shared(1); SELECT public.remaining(path)'
END
	my $job = start($a, [ '--silence', '1h', '/t/run' ], 'cat');
	$job->wait_started;
	$gate->query('SELECT pg_advisory_lock(1)');
	$a->wait_value(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'}, 1);
	$job->close_input;
	wait_until { $job->group == 0 } 'the command to end';
	$gate->query('SELECT pg_advisory_unlock(1)');
	is($job->status, 0, 'that is no loss') or diag $job->says;
	$gate->query($_)
	  foreach 'DROP FUNCTION zk_lease_remaining(text)', 'ALTER FUNCTION remaining(text) RENAME TO zk_lease_remaining';
};

subtest 'shared locks, permits, leadership' => sub {
	my @readers = map { start($_, [ '--shared', '/t/shared' ], 'cat') } $a, $b;
	$_->wait_holds('/t/shared') foreach @readers;
	is(run($a, [ '--try', '/t/shared' ], 'true')->{status}, 1, 'two have it shared, and nobody else has it alone');
	$_->end foreach @readers;

	my @loads = map { start($_, [ '--permits', 2, '/t/slots' ], 'sh', '-c', 'echo "${ZKLOCK_TOKEN-none}" >&2; cat') } $a, $b;
	$_->wait_holds('/t/slots') foreach @loads;
	$loads[0]->wait_says(qr/^none$/m, 'a permit has no token');
	is(run($a, [ '--try', '--permits=2', '/t/slots' ], 'true')->{status}, 1, 'there are two permits');
	$_->end foreach @loads;

	wait_until { $a->value("SELECT zk_is_leader('/t/leader')") eq 't' || $b->value("SELECT zk_is_leader('/t/leader')") eq 't' }
	'a leader';
	my ($leader, $other) = $a->value("SELECT zk_is_leader('/t/leader')") eq 't' ? ($a, $b) : ($b, $a);
	like(run($leader, [ '--leader', '/t/leader' ], 'sh', '-c', 'echo $ZKLOCK_TOKEN')->{out}, qr/^\d+$/, 'the leader runs it');
	is(run($other, [ '-l', '/t/leader' ], 'true')->{status}, 1, 'another server does not, and does not wait');
	my $job = start($leader, [ '--leader', '/t/leader' ], 'cat');
	$job->wait_started;
	$leader->value("SELECT zk_resign('/t/leader')");
	is($job->status, 70, 'who leads no more ends its command');
	$job = start($leader, [ '--leader', '--wait', '1min', '/t/leader' ], 'cat');
	$job->wait_says(qr{waiting for "/t/leader"}, 'it waits to lead, if asked for');
	$other->value("SELECT zk_resign('/t/leader')");
	$job->wait_started;
	$job->end;
};

subtest 'a claim' => sub {
	is(run($a, [ '--claim', 'day', '/t/nightly' ], 'sh', '-c', 'exit 4')->{status}, 4, 'the first one runs');
	my $again = run($b, [ '-v', '--claim=day', '/t/nightly' ], 'true');
	is($again->{status}, 1, 'no other one does');
	like($again->{err}, qr{this day has been claimed at "/t/nightly" before}, 'and says why');

	my $job = start($a, [ '--try', '--claim', '1ms', '/t/often' ], 'cat');
	$job->wait_holds('/t/often.running');
	is(run($b, [ '--try', '--claim', '1ms', '/t/often' ], 'true')->{status}, 1, 'with --try, not while the last one runs');
	$job->end;
	is(run($b, [ '--try', '--claim', '1ms', '/t/often' ], 'true')->{status}, 0, 'and again when it has ended');
};

subtest 'what cannot be run' => sub {
	my $absent = { PGHOST => '/nonexistent' };
	my %status = (
		'no command is given'              => [ 125, ['/t/run'] ],
		'no path is given'                 => [ 125, [] ],
		'option "--try" must stand before' => [ 125, [ '/t/run', '--try' ], 'true' ],
		'unknown option "--tyr"'           => [ 125, [ '--tyr', '/t/run' ], 'true' ],
		'invalid time "5 weeks"'           => [ 125, [ '--wait', '5 weeks', '/t/run' ], 'true' ],
		'invalid number "0"'               => [ 125, [ '--permits', 0, '/t/run' ], 'true' ],
		'it must be at least 1 s'          => [ 125, [ '--silence', '100ms', '/t/run' ], 'true' ],
		'--claim cannot be used with'      => [ 125, [ '--claim', 'day', '--leader', '/t/run' ], 'true' ],
		'cannot be used together'          => [ 125, [ '--shared', '--leader', '/t/run' ], 'true' ],
		'could not lock: invalid ZooKeeper path' => [ 125, ['t/run'], 'true' ],
		'extension "zklock" is not installed in database "template1"' => [ 125, [ '-d', 'template1', '/t/run' ], 'true' ],
		'could not connect'                => [ 75, [ '-h', '/nonexistent', '/t/run' ], 'true' ],
		'could not execute "/nonexistent"' => [ 127, ['/t/run'], '/nonexistent' ],
		'could not execute "/"'            => [ 126, ['/t/run'], '/' ]);
	foreach my $says (sort keys %status)
	{
		my ($expected, @what) = @{ $status{$says} };
		my $run = run($a, @what);
		is($run->{status}, $expected, "exit status $expected");
		like($run->{err}, qr/^zklock-run: error: .*$says/m, $says);
	}
	like(run($a, ['--help'])->{out}, qr/^Usage:\n  zklock-run /m, '--help helps');
	like(run($a, ['--version'])->{out}, qr/^zklock-run 1/, '--version says which');
};

subtest 'signals and pipes' => sub {
	my $job = start($a, ['/t/run'], 'sh', '-c', 'trap "echo caught >&2; exit 5" USR1; while :; do sleep 0.1; done');
	$job->wait_started;
	$job->signal('USR1');
	$job->wait_says(qr/^caught$/m, 'a signal is passed on');
	is($job->status, 5, 'and the command has the last word');
	$job = start($a, ['/t/run'], 'cat');
	$job->wait_started;
	$job->signal('TERM');
	is($job->status, 128 + 15, 'a command that dies of it shows in the exit status');

	my $holder = start($a, ['/t/run'], 'cat');
	$holder->wait_holds('/t/run');
	$job = start($b, ['/t/run'], 'true');
	$job->wait_says(qr/waiting for/, 'one waits');
	$job->signal('INT');
	is($job->status, 128 + 2, 'a signal ends the wait');
	$holder->end;
	wait_until { !$zk->children('/t/run') } 'the lock to be free';

	is(run_shell($a, 'set -o pipefail; zklock-run /t/run -- yes | head -n 1')->{status},
		128 + 13, 'a command dies of a pipe that is closed');
	is(run_shell($a, 'setsid --wait zklock-run /t/run -- sh -c "exit 6" <&-')->{status}, 6, 'it needs no terminal');
	my $terminal = run_shell($a, q{script -qec "zklock-run /t/run -- sh -c 'read line && echo got \$line'" /dev/null},
		"a line\n");
	like($terminal->{out}, qr/got a line/, 'a command reads from the terminal') or diag $terminal->{err};
};

$_->set_conf('zklock.elections' => '') foreach $a, $b;
done_clean($zk, $a, $b);
