# Copyright (c) 2026, zklock contributors
#
# Whatever keeps a command from being known to have the lock ends it, with all that it has started.

use Zklock::Test;
use Zklock::Run;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a');
my $path = '/t/ended';

sub lose_lock { $zk->shell->delete("$path/$_") foreach $zk->children($path); return; }

# A command with a child, which ignores SIGTERM if so asked
sub family($run_options = [], $trap = '')
{
	my $job = start($a, [ @$run_options, $path ], 'sh', '-c', "$trap sleep 1000 & sleep 1000; wait");
	$job->wait_started;
	wait_until { $job->group == 3 } 'its child';
	return $job;
}

sub ends($job, $status, $says, $name)
{
	is($job->status, $status, $name);
	$job->wait_says($says, 'and says why');
	return wait_until { $job->group == 0 } 'all that it has started to end';
}

subtest 'the lock is lost' => sub {
	my $job = family();
	lose_lock();
	ends($job, 70, qr/zklock-run: error: "$path" is lost/, 'a command whose lock is deleted is ended');

	$job = family([ '--kill-after', '100ms' ], q{trap '' TERM;});
	lose_lock();
	ends($job, 70, qr/is lost/, 'so is one that ignores SIGTERM');
	unlike($job->says, qr/does not answer/, 'by the process that keeps it');

	$job = family([ '--kill-after', '1h' ], q{trap '' TERM;});
	lose_lock();
	$job->wait_says(qr/ending the command/, 'one that has long to end');
	$job->wait_asleep('is waited for without a busy loop');
	kill 'KILL', -$job->command;
	is($job->status, 70, 'and has lost its lock');

	$job = start($a, [ '--no-kill', $path ], 'cat');
	$job->wait_started;
	lose_lock();
	$job->wait_says(qr/is lost/, 'with --no-kill that is said');
	$job->close_input;
	is($job->status, 70, 'and the command ends by itself, with the exit status of a loss');
};

subtest 'its time is over' => sub {
	local $ENV{PGOPTIONS} = '-c zklock.max_hold_time=2s';
	is(run($a, [$path], 'sleep', 1000)->{status}, 70, 'so that of the command is');
};

subtest 'the database' => sub {
	my $job = family();
	$a->value("SELECT pg_terminate_backend(pid) FROM zk_locks WHERE path = '$path'");
	ends($job, 70, qr/is lost/, 'a session that is terminated ends the command');

	$job = family();
	my ($backend) = map { $_->{pid} } $a->locks("path = '$path'");
	freeze($backend);
	ends($job, 70, qr/nothing proves any more that "$path" is held/, 'a session that is silent does, when the lease is over');
	thaw($backend);
	wait_until { !$a->lock_count } 'its lock to be gone';
	$job = start($a, [ '--no-kill', $path ], 'cat');
	$job->wait_holds($path);
	($backend) = map { $_->{pid} } $a->locks("path = '$path'");
	freeze($backend);
	$job->wait_says(qr/nothing proves any more/, 'with --no-kill that is said');
	$job->wait_asleep('and the deadline that has passed makes nobody busy');
	thaw($backend);
	$job->close_input;
	is($job->status, 70, 'the command has ended by itself');
	wait_until { !$a->lock_count } 'its lock to be gone';

	$job = family();
	$a->node->stop('immediate');
	ends($job, 70, qr/is lost/, 'so does a crash');
	$a->start_connected;
};

subtest 'ZooKeeper' => sub {
	my $job = family();
	$a->cut_off($proxy);
	ends($job, 70, qr/nothing proves any more/, 'a server that is cut off ends the command with its lease');
	$a->reconnect($proxy);
	wait_until { !$a->lock_count } 'its lock to be gone';
	$job = start($a, [ '--silence', '1h', $path ], 'cat');
	$job->wait_started;
	$proxy->sustain;
	$a->cut_off($proxy);
	wait_until { $a->lock_count("state = 'suspended'") } 'the lease to end';
	$a->reconnect($proxy);
	$job->wait_holds($path);
	$job->close_input;
	is($job->status, 0, 'with --silence it outlives that');
	$a->cut_off($proxy);
	is(run($a, [ '--try', $path ], 'true')->{status}, 75, 'if ZooKeeper cannot be asked, that is no conflict');
	$a->reconnect($proxy);
};

subtest 'its own processes' => sub {
	# However long the proof may last
	my $job = family([ '--silence', '1h' ]);
	$job->signal('KILL');
	wait_until { $job->group == 0 } 'the command of a zklock-run that is killed to end';
	wait_until { !$zk->children($path) } 'its lock to be free';

	$job = family();
	$job->signal('STOP');
	wait_until { $job->group == 0 } 'the command of one that is stopped to end';
	$job->signal('CONT');
	is($job->status, 70, 'and it says so when it goes on');

	$job = family();
	kill 'KILL', $job->keeper;
	is($job->status, 125, 'zklock-run ends with its keeper');
	wait_until { $job->group == 0 } 'the command to end with it';

	$job = family([ '--kill-after', '100ms' ]);
	freeze($job->keeper);
	lose_lock();
	is($job->status, 70, 'a keeper that is stopped does not save the command');
	wait_until { $job->group == 0 } 'the command to end';
};

done_clean($zk, $a, $b);
