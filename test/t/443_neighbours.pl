# Copyright (c) 2026, zklock contributors
#
# A path below that of another lock or semaphore is refused if its node would harm the
# clients that use the other one. With the real Curator, which would never get its lock again.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::JavaPeer;

my ($zk, $a, $b) = cast('a b', conf => ["zklock.parent_nodes = 'persistent'"]);
my $shell = $zk->shell;
my $s     = $a->session(name => 's');
my $r     = $b->session(name => 'r');
my $java  = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);

sub refused($call, $what)
{
	return fails($s->try("SELECT $call"), '55006', "$what: $call is refused", message => qr/it lies below a lock or semaphore in use/);
}

# ---- below a lock of Curator's

foreach my $kind (qw(mutex write read))
{
	subtest "below a lock in use: $kind" => sub {
		my $path = "/m/$kind";
		is($java->acquire('j', $path, -1, $kind), 1, 'Curator has the lock');
		foreach my $name ('0', '00', '-1', '.x', '#1', 'clock-')
		{
			refused("zk_try_lock('$path/$name')", $name);
			refused("zk_lock('$path/$name/deeper/still')", "below $name");
		}
		refused("zk_semaphore_acquire('$path/0', 3)", 'a semaphore');
		is(scalar($zk->children($path)), 1, 'nothing is created');
		is($s->query("SELECT zk_lock('$path/$_') AND zk_unlock('$path/$_')"), 't', "$_ harms nobody")
		  foreach qw(eu order-17 2026 leases locks lock);
		$java->release('j');
		is($java->acquire('j', $path, 20000, $kind), 1, 'Curator can have it again');
		$java->release('j');
	};
}

subtest 'a name that would harm, where nobody is to be seen, or the node exists' => sub {
	is($s->query("SELECT zk_lock('/n/quiet/0') AND zk_unlock('/n/quiet/0')"), 't', 'nobody is there');
	is($java->acquire('j', '/n/quiet', 300), 0, 'which Curator cannot bear');
	is($s->query("SELECT zk_lock('/n/quiet/0') AND zk_unlock('/n/quiet/0')"), 't', 'what exists can be locked');
	$shell->delete('/n/quiet/0');
	is($java->acquire('j', '/n/quiet', 20000), 1, 'when it is gone Curator has the lock');
	$java->release('j');
};

# ---- below a semaphore's leases

subtest 'below the leases of a semaphore' => sub {
	my $path = '/batch/slots';
	is($java->permit('p1', $path, 2, 20000), 1, 'Curator has a permit');
	refused("zk_try_lock('$path/leases/$_')", $_) foreach qw(x car-17 0);
	refused("zk_lock('$path/leases/x/y')", 'further below');
	is($java->permit('p2', $path, 2, 20000), 1, 'so it can have the other');
	my $third = $java->permit_start('p3', $path, 2);
	wait_until { $zk->children("$path/locks") } 'somebody to have the turn';
	refused("zk_try_lock('$path/locks/0')", 'below the turns');
	$java->permit_release('p1');
	is($java->result($third), 1, 'nor is the turn disturbed');
	$java->permit_release($_) foreach qw(p2 p3);

	is($r->query("SELECT zk_semaphore_acquire('$path', 2)"), 't', 'another server has a permit');
	refused("zk_try_lock('$path/leases/x')", 'beside that');
	is($s->query("SELECT zk_semaphore_acquire('$path', 2)"), 't', 'and so has the session');
	$r->query("SELECT zk_semaphore_release('$path')");
	refused("zk_try_lock('$path/leases/x')", 'beside its own');
	$s->query("SELECT zk_semaphore_release('$path')");
	wait_until { !$zk->children("$path/leases") } 'the leases to go';
	is($s->query("SELECT zk_lock('/car/leases/17') AND zk_unlock('/car/leases/17')"), 't', 'leases of cars are no semaphore');
};

# ---- locks within locks that are ours

subtest 'a tree of paths that begin with digits' => sub {
	is($s->query("SELECT zk_lock_tree('/t/2026/01/05', '/t')"), 't', 'a day');
	is($r->query("SELECT zk_lock_tree('/t/2026/01/06', '/t', '20s')"), 't', 'another, from another server');
	$s->query('SELECT zk_unlock_all()');
	is($s->query("SELECT zk_lock_tree('/t/2026/02', '/t', '20s')"), 't', 'and a month, beside it');
	$_->query('SELECT zk_unlock_all()') foreach $s, $r;
	is($s->query("SELECT zk_lock('/own/path')"), 't', 'a path is locked');
	my $other = $a->session;
	is($other->query("SELECT zk_try_lock('/own/path/0')"), 't', 'and one below it, by another session of the server');
	is($s->query("SELECT zk_try_lock('/own/path/00')"), 't', 'and by the same');
	$other->disconnect;
	$s->query('SELECT zk_unlock_all()');
};

$java->close_session;
done_clean($zk, $a, $b);
