# Copyright (c) 2026, zklock contributors
#
# zklock.max_hold_time of what is not a single exclusive lock: shared locks, upgrades and
# downgrades, several locks at once, semaphores; and when ZooKeeper is away.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT clean);

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', a => { timeout => '30s' });

# A session of the first server whose locks are limited
sub limited
{
	my ($name, $limit) = @_;
	on($a, $name)->query("SET zklock.max_hold_time = '$limit'");
	return $s{$name};
}

sub modes { my ($name, $path) = @_; return join(', ', sort $s{$name}->modes($path)); }
sub expires { my ($path) = @_; return $a->value("SELECT DISTINCT expires_at FROM zk_locks WHERE path = '$path'"); }

subtest 'of two that share a lock, one goes and the other stays' => sub {
	my $limited = limited('reader', '500ms');
	$limited->query("SELECT zk_lock_shared('/k/shared')");
	on($a, 'other reader')->query("SELECT zk_lock_shared('/k/shared')");
	$a->wait_lock($limited, 'lost', '/k/shared');
	is(modes('other reader', '/k/shared'), 'shared held', 'the other holds it');
	queue($b, 'writer', '/k/shared');
	$s{'other reader'}->query("SELECT zk_unlock_shared('/k/shared')");
	is($s{writer}->finish, 't', 'a writer waits for that one only');
	$_->query('SELECT zk_unlock_all()') foreach $limited, $s{writer};
};

subtest 'a downgrade does not make it longer' => sub {
	my $limited = limited('downgrader', '1s');
	$limited->query("SELECT zk_lock('/k/down') AND zk_lock_shared('/k/down')");
	my $expires = expires('/k/down');
	$limited->query("SELECT zk_unlock('/k/down')");
	is(modes('downgrader', '/k/down'), 'shared held', 'the shared lock is left');
	is(expires('/k/down'), $expires, 'with the same end');
	queue($b, 'writer', '/k/down');
	is($s{writer}->finish, 't', 'then a writer gets it');
	$_->query('SELECT zk_unlock_all()') foreach $limited, $s{writer};
};

subtest 'an upgrade has a time of its own' => sub {
	my $limited = limited('upgrader', '500ms');
	$limited->query("SELECT zk_lock_shared('/k/up')");
	$limited->query('SET zklock.max_hold_time = 0');
	$limited->query("SELECT zk_lock('/k/up')");
	$a->wait_lock($limited, 'lost', '/k/up');
	is(modes('upgrader', '/k/up'), 'exclusive held, shared lost', 'the shared lock goes, the exclusive one stays');
	$limited->query('SELECT zk_unlock_all()');
};

foreach my $case (
	[ 'an array', "zk_lock('{/k/array1,/k/array2}'::text[])", '/k/array2' ],
	[ 'a tree', "zk_lock_tree('/k/tree/leaf', '/k')", '/k/tree/leaf' ])
{
	my ($what, $call, $last) = @$case;
	subtest "of $what, what is lost while others are waited for makes it fail" => sub {
		hold($b, 'blocker', $last);
		my $limited = limited('collector', '500ms');
		$limited->query_start("SELECT $call");
		$a->wait_lock($limited, 'lost');
		$s{blocker}->query("SELECT zk_unlock('$last')");
		my $result = $limited->result;
		is($result->{sqlstate}, '40001', 'it fails') or diag explain $result;
		like($result->{error}, qr/It was held for longer/, 'and says why');
		is($a->lock_count('pid = ' . $limited->pid . " AND state <> 'releasing'"), 0, 'nothing is held');
	};
}

subtest 'a permit of a semaphore' => sub {
	my $limited = limited('permit', '500ms');
	$limited->query("SELECT zk_semaphore_acquire('/k/sem', 1)");
	isnt(expires('/k/sem'), '', 'zk_locks tells until when');
	is(on($b, 'next permit')->query("SELECT zk_semaphore_acquire('/k/sem', 1)"), 't', 'then another server has it');
	is($limited->query("SELECT zk_semaphore_release('/k/sem')"), 'f', 'the loss is not silent');
	$s{'next permit'}->query("SELECT zk_semaphore_release('/k/sem')");
};

subtest 'a session that is stopped while it waits for a permit' => sub {
	on($b, 'owner')->query("SELECT zk_semaphore_acquire('/k/turn', 1)");
	my $stopped = limited('stopped', '1s');
	$stopped->query_start("SELECT zk_semaphore_acquire('/k/turn', 1)");
	wait_until { $zk->children('/k/turn/leases') == 2 } 'it to have its turn, and to wait for the permit';
	freeze($stopped->pid);
	on($b, 'third')->query_start("SELECT zk_semaphore_acquire('/k/turn', 1)");
	$s{owner}->query("SELECT zk_semaphore_release('/k/turn')");
	is($s{third}->finish, 't', 'holds up others with its turn and its permit, but not for ever');
	thaw($stopped->pid);
	is($stopped->result->{sqlstate}, '40001', 'it is told that it has lost the permit');
	$s{third}->query("SELECT zk_semaphore_release('/k/turn')");
};

subtest 'ZooKeeper is away' => sub {
	my $limited = limited('offline', '1s');
	$limited->query("SELECT zk_lock('/k/away')");
	$proxy->cut;
	$a->wait_lock($limited, 'lost', '/k/away');
	queue($b, 'waiter', '/k/away');
	$proxy->heal;
	is($s{waiter}->finish, 't', 'the lock is lost in time, and free as soon as ZooKeeper hears of it');
	$_->query('SELECT zk_unlock_all()') foreach $limited, $s{waiter};
};

clean($zk, [ $a, $b ], map { "/k/$_" } qw(shared down up array1 array2 tree/leaf sem/leases sem/locks turn/leases turn/locks away));
done_testing;
