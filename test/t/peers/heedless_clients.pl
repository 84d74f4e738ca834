# Copyright (c) 2026, zklock contributors
#
# A client that knows only its own names locks the same path as one that writes other names,
# and each believes that it holds the lock. The log reports a client that does not wait for
# our nodes, with what to do; not those that wait, nor zklock's own sessions elsewhere. Who waits for whom is in
# test/unit/test_heed.c, and what would harm others in test_missing_path.c.
#
# And a path below that of another lock or semaphore is refused if its node would harm the
# clients that use the other one. With the real Curator, which would never get its lock again.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::JavaPeer;

my ($zk, $a, $b) = cast('a b', conf => ["zklock.parent_nodes = 'persistent'"]);
my $kazoo = $zk->shell;
my $java  = Zklock::JavaPeer->new;
$java->connect($zk->connect_string);
my $alarm = qr/WARNING:  clients that do not wait for each other/;

# Waits for the lock that somebody else has, until that one releases it.
sub wait_and_get($function, $path, $release)
{
	my $s = $a->session;
	$s->query_start("SELECT $function('$path')");
	$s->wait_row('blocked_by_node IS NOT NULL', $path);
	$release->();
	return is($s->finish, 't', 'the lock is got in its turn');
}

subtest "kazoo's Lock on a path that is locked in dialect curator is reported once" => sub {
	my $mark = $a->log_mark;
	$kazoo->lock('k', '/kz/1', patterns => []);
	wait_and_get('zk_lock', '/kz/1', sub { $kazoo->unlock('k') });
	my @alarms = $a->log_since($mark) =~ /^(.*$alarm.*\n.*DETAIL.*\n.*HINT.*)$/mg;
	is(@alarms, 1, 'there is one warning');
	like($alarms[0], qr{lock ZooKeeper path "/kz/1"$}m, 'it names the path');
	like($alarms[0], qr{write names of dialect "curator"\. Node "[0-9a-f]{32}__lock__\d{10}" has one of dialect "kazoo"},
		'it names both dialects and the node');
	like($alarms[0], qr{Set "zklock.path_dialects" to '/kz/1=kazoo' on all servers, or give kazoo's Lock extra_lock_patterns},
		'it says what to do');

	$mark = $a->log_mark;
	$kazoo->lock('k', '/kz/1', patterns => []);
	wait_and_get('zk_lock', '/kz/1', sub { $kazoo->unlock('k') });
	unlike($a->log_since($mark), $alarm, 'there is no other for the same path');

	$kazoo->lock('k', '/kz/2', patterns => []);
	is($a->value("SELECT zk_try_lock('/kz/2')"), 'f', 'a session that does not wait finds another path taken');
	$a->assert_log($mark, qr{$alarm lock ZooKeeper path "/kz/2"}, 'which is reported, too');
	$kazoo->unlock('k');
};

subtest 'such a client that comes behind ours takes the lock as well' => sub {
	my $s    = $a->session;
	my $mark = $a->log_mark;
	$s->query("SELECT zk_lock('/kz/3')");
	$kazoo->lock('k', '/kz/3', patterns => []);
	is($a->value("SELECT string_agg(dialect || ' ' || heeds_us || ' ' || granted, ', ' ORDER BY \"position\") FROM zk_contenders('/kz/3')"),
		'curator true true, kazoo false false', 'zk_contenders shows both');
	$a->assert_log($mark, qr{$alarm lock ZooKeeper path "/kz/3"\n.*dialect "kazoo"}, 'which is reported, though nobody else asks for the lock');
	my $write = $zk->shell->create('/kz/3/_c_00000000-0000-0000-0000-000000000001-__WRIT__', ephemeral => 1, sequence => 1);
	$a->assert_log($mark, qr{$alarm lock ZooKeeper path "/kz/3"\n.*dialect "curator_rw"}, 'and so is another kind of client');
	is(scalar(() = $a->log_since($mark) =~ /$alarm/g), 2, 'each has one');
	$zk->shell->delete($write);
	$kazoo->unlock('k');
};

subtest 'a role that has caused all messages that it may does not silence it' => sub {
	my $mark = $a->log_mark;
	$a->value('CREATE ROLE mallory LOGIN; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory');
	my $mallory = $a->session(user => 'mallory');
	$mallory->query(q{DO $$ BEGIN FOR i IN 1 .. 1010 LOOP
		PERFORM zk_queue_offer('/chatter/' || i, 'x');
		BEGIN PERFORM zk_lock('/chatter/' || i); EXCEPTION WHEN object_in_use THEN NULL; END;
	END LOOP; END $$});
	is(scalar(() = $a->log_since($mark) =~ /ignoring child "qn-/g), 1000, 'it has caused a thousand');
	$kazoo->lock('k', '/kz/4', patterns => []);
	is($mallory->query("SELECT zk_try_lock('/kz/4')"), 'f', 'mallory finds a path taken');
	$a->assert_log($mark, qr{$alarm lock ZooKeeper path "/kz/4"}, 'which is reported');
	$kazoo->unlock('k');
	$zk->shell->create('/kz/5/strange-0000000001', makepath => 1);
	is($a->value("SELECT zk_try_lock('/kz/5')"), 't', 'another role locks a path that has a strange child');
	$a->assert_log($mark, qr{ignoring child .* "/kz/5"}, 'and that is reported, too');
	$mallory->disconnect;
};

subtest "Curator's write lock on a path that is locked in dialect curator is reported" => sub {
	my $mark = $a->log_mark;
	$java->acquire('j', '/rw/1', -1, 'write');
	wait_and_get('zk_lock', '/rw/1', sub { $java->release('j') });
	$a->assert_log($mark, qr{$alarm lock ZooKeeper path "/rw/1".*'/rw/1=curator_rw'}s, 'with the dialect that suits it');
};

# Our dialect, our function, and who has the lock before.
my @fine = (
	[ 'curator',    'zk_lock',        'mutex' ],
	[ 'curator_rw', 'zk_lock',        'read' ],
	[ 'curator_rw', 'zk_lock',        'write' ],
	[ 'curator_rw', 'zk_lock_shared', 'write' ],
	[ 'zookeeper',  'zk_lock',        'recipe' ],
	[ 'curator',    'zk_lock',        'recipe' ],
	[ 'hive',       'zk_lock',        'hive_shared' ],
	[ 'hive',       'zk_lock_shared', 'hive_exclusive' ]);

subtest 'clients that wait for ours are not reported' => sub {
	my $mark = $a->log_mark;
	foreach my $case (@fine)
	{
		my ($dialect, $function, $kind) = @$case;
		my $path = "/fine/${dialect}_${function}_$kind";
		$a->write_dialect($dialect);
		$java->acquire('j', $path, -1, $kind);
		wait_and_get($function, $path, sub { $java->release('j') });
	}
	$a->write_dialect('kazoo');
	$kazoo->lock('k', '/fine/kazoo');
	wait_and_get('zk_lock', '/fine/kazoo', sub { $kazoo->unlock('k') });
	$b->write_dialect('kazoo');
	my $holder = $b->session;
	is($holder->query("SELECT zk_lock_shared('/fine/own')"), 't', 'a session of another server reads');
	wait_and_get('zk_lock', '/fine/own', sub { $holder->disconnect });
	unlike($a->log_since($mark), $alarm, 'there is no warning');
};

my ($s, $r) = map { $_->session(name => $_->name) } $a, $b;
$_->server->write_dialect('curator', $_) foreach $s, $r;

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
	$zk->shell->delete('/n/quiet/0');
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
