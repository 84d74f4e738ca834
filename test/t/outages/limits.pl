# Copyright (c) 2026, zklock contributors
#
# A ZooKeeper server lacks something: quota, disk space, room for a message.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT clean scene undisturbed scene_ends);

# What the servers accept in one message is a thousandth of the usual: 1 KB.
my ($zk, $a, $b) = cast('a b', timeout => '20s',
	zk => { java => [ '-Dzookeeper.enforceQuota=true', '-Djute.maxbuffer=1024' ] });
my $shell = $zk->shell;

# As "setquota" of ZooKeeper's own shell sets it.
sub set_quota($path, $limits)
{
	$shell->create("/zookeeper/quota$path/zookeeper_limits",
		data => "count=-1,bytes=-1;$limits", makepath => 1);
	$shell->create("/zookeeper/quota$path/zookeeper_stats", data => 'count=0,bytes=0');
	return;
}

sub exceeded($result, $what)
{
	return fails($result, '58000', "$what is an error", detail => qr/^ZooKeeper refused: ZQUOTAEXCEEDED\./,
		hint => qr/raise the quota, which may be that of a path above/);
}

subtest 'a quota of nodes limits locks, and is told' => sub {
	# The path, one lock below and its node: three.
	$shell->create('/q/count', makepath => 1);
	set_quota('/q/count', 'countHardLimit=3');
	hold($a, 'holder', '/q/count/lock');
	# Who waits on the same server needs no node.
	queue($a, 'local', '/q/count/lock');
	exceeded(on($b, 'remote')->try("SELECT zk_lock('/q/count/lock')"), 'a node too many');
	exceeded($s{remote}->try("SELECT zk_lock('/q/count/other')"), 'a path too many');
	exceeded($s{remote}->try("SELECT zk_lock(ARRAY['/q/free', '/q/count/lock'])"), 'one too many of several');
	is($s{remote}->query("SELECT zk_try_lock('/q/count/lock')"), 'f', 'who does not wait needs no node either');
	hand_on('/q/count/lock', 'holder', 'local');
	is($s{remote}->query("SELECT zk_lock('/q/count/lock', '30s')"), 't', 'then there is room again');
	$s{remote}->query("SELECT zk_unlock('/q/count/lock')");
	Zklock::Server->assert_clean($zk, [ $a, $b ]);
	ok(!$shell->exists('/q/count/other'), 'of what was refused nothing is there');
};

subtest 'a quota that gets lower lets go what is there' => sub {
	hold($a, 'holder', '/q/lowered');
	set_quota('/q/lowered', 'countHardLimit=1');
	exceeded(on($b, 'remote')->try("SELECT zk_lock('/q/lowered')"), 'any node');
	is($s{holder}->query("SELECT zk_unlock('/q/lowered')"), 't', 'but a lock can be released');
	exceeded($s{holder}->try("SELECT zk_lock('/q/lowered')"), 'a new one');
	clean($zk, [ $a, $b ]);
};

subtest 'a role that runs into a quota all the time does not fill the log' => sub {
	# The path and the exclusive node: there is no room for a shared one that takes its place.
	$shell->create('/q/full', makepath => 1);
	set_quota('/q/full', 'countHardLimit=2');
	my ($mark, $role) = ($a->log_mark, on($a, 'role'));
	foreach (1 .. 15)
	{
		$role->query("SELECT zk_lock('/q/full') AND zk_lock_shared('/q/full')");
		is($role->query("SELECT zk_unlock('/q/full')"), 't', 'it does not wait for others to be able to share the lock');
		$role->query("SELECT zk_unlock_shared('/q/full')");
	}
	$a->assert_rare($mark, qr/LOG:  could not replace ZooKeeper node/, 'the log tells of a refusal once a second at most');
};

subtest 'a quota limits what is offered to a queue' => sub {
	my $queue = '/q/queue';
	my $offer = "SELECT zk_queue_offer('$queue', repeat('x', %d)::bytea)";
	my $taker = on($a, 'taker');
	my $beyond = sub ($length, $name, $call = sprintf $offer, $length) {
		fails($taker->try($call), '58000', $name,
			message => qr/has reached its quota/, detail => qr/ZQUOTAEXCEEDED/, hint => qr/raise the quota/);
	};
	$taker->query(sprintf $offer, 10);
	set_quota($queue, 'byteHardLimit=500;countHardLimit=4');
	$taker->query(sprintf $offer, 10) foreach 1 .. 2;
	$beyond->(10, 'one element more than it may have is refused');
	$beyond->(0, 'so is the claim of one', "SELECT zk_xact_queue_take('$queue', '0')");
	is($taker->query("SELECT length(zk_queue_remove('$queue'))"), 10, 'when one is taken');
	isnt($taker->query(sprintf $offer, 10), '', 'there is room for another');
	$taker->query("SELECT zk_queue_remove('$queue')") foreach 1 .. 3;
	$beyond->(501, 'more bytes are refused');
	isnt($taker->query(sprintf $offer, 400), '', 'fewer are not');
	is($taker->query("SELECT length(zk_queue_remove('$queue'))"), 400, 'and come out');
	$a->assert_clean($zk, $queue, '/zklock-receipts');
};

subtest "a queue longer than a message of the server's may be is served" => sub {
	$shell->create('/j/queue', makepath => 1);
	my @foreign = map {
		$shell->create(sprintf('/j/queue/_c_%08d-0000-0000-0000-000000000000-lock-', $_), sequence => 1) } 1 .. 100;
	queue($a, 'waiter', '/j/queue');
	queue($a, 'second', '/j/queue');
	queue($b, 'remote', '/j/queue');
	is(on($a, 'trier')->query("SELECT zk_try_lock('/j/queue')"), 'f', 'a long queue can be read');
	my $last = pop @foreign;
	$shell->delete($_) foreach @foreign;
	$a->wait_value("SELECT blocked_by_node FROM zk_locks WHERE pid = " . $s{waiter}->pid, $last =~ s{.*/}{}r);
	ok($s{waiter}->busy, 'and waited for to its end');
	$shell->delete($last);
	is($s{waiter}->finish, 't', 'then the lock is granted');
	hand_on('/j/queue', qw(waiter second remote));
	clean($zk, [ $a, $b ]);
};

# It answers by closing the connection. Whoever asked can give up; that is the end of it.
subtest 'a request that is too long for the server costs nobody else anything' => sub {
	my $long = '/j/' . 'x' x 1000;
	hold($a, 'holder', '/j/held');
	my ($id, $before, $reconnects) = ($a->session_id, holdings($a), $a->zk_session->{reconnects});
	fails(on($a, 'asker')->try("SELECT zk_try_lock('$long')"), '58030', 'a path too long for the server: who does not wait has an error');
	$s{asker}->query_start("SELECT zk_lock('$long')");
	wait_until { $a->zk_session->{reconnects} > $reconnects + 3 } 'more attempts';
	ok($s{asker}->busy, 'who waits, waits');
	is($s{asker}->cancelled, '57014', 'but can be cancelled');
	$a->wait_session;
	wait_until { $a->lock_count == 1 } 'the request to be forgotten';
	is($a->session_id, $id, 'the session has survived');
	is_deeply(holdings($a), $before, 'so have locks');
	clean($zk, [$a], '/j/held');
};

# A server that cannot write its log gives up.
subtest 'a ZooKeeper without disk space is survived' => sub {
	$zk->stop;
	$zk->options(java => [], file_size => 600);
	$zk->start;
	$_->wait_session foreach $a, $b;
	in_transaction($a, 'xact', '/f/xact');
	scene($a, $b, '/f');
	hold($a, 'unlocker', '/f/unlock');
	$shell->create('/f/fill');
	eval { $shell->set('/f/fill', 'x' x 50_000) foreach 1 .. 100 };
	wait_until { !$zk->running } 'ZooKeeper to give up';
	$a->wait_session('connecting');
	is($s{unlocker}->query("SELECT zk_unlock('/f/unlock')"), 't', 'a lock is given back');
	is(on($a, 'asker')->try("SELECT zk_try_lock('/f/free')")->{sqlstate}, '58030', 'nobody can tell whether one is free');
	$zk->options(file_size => undef);
	$zk->start;
	undisturbed('with disk space');
	ok($s{xact}->try('COMMIT')->{ok}, 'a transaction commits');
	scene_ends();
};

done_clean($zk, $a, $b);
