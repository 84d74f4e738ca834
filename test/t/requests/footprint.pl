# Copyright (c) 2026, zklock contributors
#
# What the worker costs when there is nothing to do, and what it keeps afterwards. What a session keeps is in the SQL
# contract.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);

my ($zk, $a, $b) = cast('a b', a => { conf => ['zklock.max_locks = 16384'] });

# Memory of its own, kB: what is shared with all of PostgreSQL does not count.
sub memory
{
	my $status = slurp_file('/proc/' . $a->worker_pid . '/status');
	my ($anon) = $status =~ /^RssAnon:\s+(\d+) kB/m;
	my ($file) = $status =~ /^RssFile:\s+(\d+) kB/m;
	return ($anon, $anon + $file);
}

# What it does in some seconds. There is no condition to wait for: time itself counts. How often it wakes up does not depend
# on what else the machine does; one that does not even sleep takes all the time that there is.
sub idle($what)
{
	my @before = $a->worker_effort;
	my $end    = time + 4;
	wait_until { time >= $end } 'the end of the observation', 10;
	my @after = $a->worker_effort;
	my ($wakeups, $ticks) = map { $after[$_] - $before[$_] } 0, 1;
	note "$what: $wakeups wake-ups, $ticks ticks";
	cmp_ok($wakeups, '<=', 200, "$what: the worker is awake a few times in a second");
	cmp_ok($ticks,   '<=', scaled(10), "$what: and not for long");
	return;
}

my ($anon, $total) = memory();
note "idle: $anon kB anonymous, $total kB in all";
cmp_ok($total, '<', 30 * 1024, 'an idle worker is smaller than 30 MB');
idle('nobody locks');

my $size = $a->value("SELECT allocated_size FROM pg_shmem_allocations WHERE name = 'zklock'");
note "shared memory: $size bytes";
cmp_ok($size, '<', 64 * 1024 * 1024, '16384 entries take less than 64 MB of shared memory');

# Locks that are held and waited for are no work either.
my $holder  = $a->session;
my $remote  = $b->session;
my @waiting = map { $a->session } 1 .. 20;
$holder->query("SELECT zk_lock('/f/held')");
$remote->query("SELECT zk_lock('/f/remote')");
foreach my $i (0 .. $#waiting)
{
	$waiting[$i]->start_waiting("SELECT zk_lock('" . ($i % 2 ? '/f/held' : '/f/remote') . "')");
}
idle('locks are held and waited for');
$_->cancel foreach @waiting;
$_->result foreach @waiting;
$_->query('SELECT zk_unlock_all()') foreach $holder, $remote;
$_->disconnect foreach @waiting;

# What comes and goes leaves no trace in the worker's memory.
sub traffic
{
	$holder->query(
		q{DO $$
		BEGIN
			FOR i IN 1 .. 1500 LOOP
				PERFORM zk_lock('/f/traffic' || i % 7);
				PERFORM zk_unlock('/f/traffic' || i % 7);
			END LOOP;
		END $$});
	$holder->query(
		q{SELECT bool_and(zk_lock('/f/many/' || i)) FROM generate_series(1, 500) i});
	$holder->query('SELECT zk_unlock_all()');
	return;
}
traffic();
my ($before) = memory();
traffic() foreach 1 .. 4;
my ($after, $all) = memory();
note "after traffic: $before kB, after four times as much: $after kB anonymous, $all kB in all";
cmp_ok($after, '<', $before + 1024, 'memory does not grow with traffic');
cmp_ok($all, '<', 30 * 1024, 'the worker is still smaller than 30 MB');
# What is still being given back is no idleness.
Zklock::Server->assert_clean($zk, [ $a, $b ], map({ "/f/traffic$_" } 0 .. 6),
	map({ "/f/many/$_" } 1 .. 500), '/f/held', '/f/remote');
idle('after traffic');

# Without ZooKeeper it tries to connect again and again, but not all the time.
$zk->stop;
$a->wait_session('connecting');
$holder->start_waiting("SELECT zk_lock('/f/held')");
idle('ZooKeeper is away');
$zk->start;
is($holder->finish, 't', 'and when ZooKeeper is back it works');

is($holder->query("SELECT zk_unlock('/f/held')"), 't', 'unlocked');
$_->disconnect foreach $holder, $remote;

# A name that nobody knows.
$a->value("ALTER SYSTEM SET zklock.servers = 'no-such-host.invalid:2181'");
$a->restart;
$a->wait_session('down');
idle('no server name resolves');
$a->set_conf('zklock.servers' => $zk->connect_string);
$a->wait_session;
done_clean($zk, $a, $b);
