# Copyright (c) 2026, zklock contributors
#
# zk_break_lock(): deletes the node of a living contender, whatever client it is, and only that. What it refuses, and to
# whom, is in sql/break_lock.sql.

use Zklock::Test;
use Zklock::Cast qw(:DEFAULT lost story);
use Zklock::JavaPeer;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a');
my $shell = $zk->shell;
my $java  = Zklock::JavaPeer->new;
my $java_session = $java->connect($zk->connect_string);
my $admin = $a->session(name => 'admin');
my $user  = $admin->query('SELECT session_user');

# As one would at 3 a.m.: who is there, and away with it
sub node($path, $where) { return $admin->query("SELECT node FROM zk_contenders('$path') WHERE $where"); }

sub break_it($path, $where)
{
	return $admin->query("SELECT zk_break_lock('$path', node) FROM zk_contenders('$path') WHERE $where");
}

sub refuses($session, $arguments, $sqlstate, $name)
{
	return is($session->try("SELECT zk_break_lock($arguments)")->{sqlstate}, $sqlstate, $name);
}

story 'a holder of the same server hears of its loss, and the next one gets the lock' => sub {
	hold($a, 'holder', '/b/local');
	queue($a, 'waiter', '/b/local');
	my $mark = $a->log_mark;
	my $node = node('/b/local', 'granted');
	is(break_it('/b/local', 'granted'), 't', 'the node is deleted');
	lost($a, 'holder', '/b/local');
	is($s{waiter}->finish, 't', 'the waiting session holds the lock');
	my ($pid, $holder) = ($admin->pid, $s{holder}->pid);
	$a->assert_log($mark, qr{LOG:  role "$user", process $pid, deleted node "/b/local/$node" by zk_break_lock\(\)}, 'the log says who did it');
	$a->assert_log($mark, qr{DETAIL:  It was that of process $holder of server a, in ZooKeeper session 0x}, 'to whom');
	is($admin->query("SELECT zk_break_lock('/b/local', '$node')"), 'f', 'the node is gone');
};

story 'a session that waits queues again' => sub {
	hold($a, 'holder', '/b/waits');
	queue($b, 'first', '/b/waits');
	$b->wait_queued($s{first});
	is(break_it('/b/waits', 'NOT granted'), 't', 'its node is deleted');
	wait_until { my @rows = @{ $admin->try(q{SELECT server FROM zk_contenders('/b/waits') WHERE NOT granted})->{rows} }; @rows == 1 }
		'a new one';
	$s{holder}->query("SELECT zk_unlock('/b/waits')");
	is($s{first}->finish, 't', 'and is served');
};

story "a client of Curator's" => sub {
	$java->acquire('holder', '/b/java', -1);
	queue($a, 'waiter', '/b/java');
	my $mark = $a->log_mark;
	my $owner = $admin->query(q{SELECT owner FROM zk_contenders('/b/java') WHERE granted});
	is(break_it('/b/java', 'granted'), 't', 'its node is deleted');
	is($s{waiter}->finish, 't', 'the lock is free');
	$a->assert_log($mark, qr/DETAIL:  It was that of \Q$owner\E, in ZooKeeper session $java_session\./, 'the log names the client');
};

story 'permits, and turns to get one' => sub {
	on($a, 'holder')->query("SELECT zk_semaphore_acquire('/b/slots', 1)");
	on($b, 'first')->query_start("SELECT zk_semaphore_acquire('/b/slots', 1)");
	wait_until { 2 == $zk->children('/b/slots/leases') } 'a session that waits for the permit';
	on($a, 'second')->query_start("SELECT zk_semaphore_acquire('/b/slots', 1)");
	wait_until { 2 == $zk->children('/b/slots/locks') } 'one that waits for its turn';
	is(break_it('/b/slots', q{kind = 'turn' AND granted}), 't', 'a turn is broken');
	wait_until { 3 == $zk->children('/b/slots/leases') } 'the next has it, and both wait for the permit';
	is(break_it('/b/slots', q{kind = 'semaphore' AND granted}), 't', 'a permit is broken');
	$a->wait_lock($s{holder}, 'lost', '/b/slots');
	is($s{first}->finish, 't', 'the next one has it');
};

subtest 'whatever it is, and the one that was meant' => sub {
	my $name = '_c_00000000-0000-0000-0000-000000000001-lock-0000000000';
	# A client may have made a node that outlives it.
	$shell->create("/b/other/$name", makepath => 1);
	my $mark = $a->log_mark;
	my $result = $admin->try("SELECT zk_break_lock('/b/other', '$name')");
	is($result->{text}, 't', 'a node that is not ephemeral');
	like($result->{notices}[0], qr{^NOTICE:  \S+ node "/b/other/$name" was not ephemeral}, 'which the client is told');
	$a->assert_log($mark, qr{deleted node "/b/other/$name" by zk_break_lock\(\)\n.*DETAIL:  It was that of a client that does not tell its name, and not ephemeral\.},
		'as the log says');

	# Data that are no line of text do not say whose it was.
	foreach my $data ("a\nb", "\x{85}")
	{
		$shell->create("/b/other/$name", ephemeral => 1, data => $data);
		$mark = $a->log_mark;
		is($admin->query("SELECT zk_break_lock('/b/other', '$name')"), 't', 'a node with strange data');
		$a->assert_log($mark, qr{DETAIL:  It was that of ZooKeeper session (0x[0-9a-f]+), in ZooKeeper session \g1\.}, 'the log has its session');
	}

	# The second look is that of the deletion.
	$shell->create("/b/other/$name", ephemeral => 1);
	$proxy->hold_request_of($admin, "SELECT zk_break_lock('/b/other', '$name')", op => 'exists', path => "$name\$", nth => 2);
	$shell->delete("/b/other/$name");
	$shell->create("/b/other/$name", ephemeral => 1);
	$proxy->heal;
	is($admin->finish, 'f', 'another node has come to have the name');
	ok($shell->exists("/b/other/$name"), 'it is still there');

	# What nobody of us may read, we may delete if the path lets us, and if ZooKeeper tells whose
	# it is, which 3.9.3 does not.
	$shell->set_acl("/b/other/$name", [ [ 'digest', 'me:secret', 'cdrwa' ] ]);
	my $told = eval { $shell->exists("/b/other/$name"); 1 };
	refuses($admin, "'/b/other', '$name'", '42501', 'a node of which nothing is told') unless $told;
	is($admin->query("SELECT zk_break_lock('/b/other', '$name')"), 't', 'a node that we must not read') if $told;
};

subtest 'who holds is found by itself' => sub {
	my @readers = map { on($a, "reader$_") } 1, 2;
	$_->query("SELECT zk_lock_shared('/b/holders')") foreach @readers;
	$java->acquire('holder', '/b/holders', -1, 'read');
	queue($b, 'waiter', '/b/holders');
	is($admin->query("SELECT zk_break_lock('/b/holders')"), 't', 'all who share a lock');
	is($s{waiter}->finish, 't', 'not who waits');
	$a->wait_lock($_, 'lost', '/b/holders') foreach @readers;
	is($admin->query("SELECT zk_break_lock('/b/holders')"), 't', 'then that one');
	lost($b, 'waiter', '/b/holders');
	is($admin->query("SELECT zk_break_lock('/b/holders')"), 'f', 'and nobody');
	is($admin->query("SELECT zk_break_lock('/b/nothing')"), 'f', 'where nothing is');
	all_disconnect();

	on($b, "holder$_")->query("SELECT zk_semaphore_acquire('/b/permits', 2)") foreach 1, 2;
	on($a, 'next')->query_start("SELECT zk_semaphore_acquire('/b/permits', 2)");
	wait_until { 3 == $zk->children('/b/permits/leases') } 'a session that waits for a permit';
	is($admin->query("SELECT zk_break_lock('/b/permits')"), 't', 'permits');
	is($s{next}->finish, 't', 'the next has one');
	$b->wait_lock($s{"holder$_"}, 'lost', '/b/permits') foreach 1, 2;
	all_disconnect();

	$shell->create('/b/election/_c_00000000-0000-0000-0000-000000000001-latch-0000000000', ephemeral => 1, makepath => 1);
	is($admin->query("SELECT zk_break_lock('/b/election')"), 't', 'who leads');
	is_deeply($shell->ls('/b/election'), [], 'leads no more');

	$shell->create('/b/unknown/leases/_c_00000000-0000-0000-0000-000000000001-lease-0000000000', ephemeral => 1, makepath => 1);
	fails($admin->try("SELECT zk_break_lock('/b/unknown')"), '55000', 'of a semaphore of which nobody tells the permits',
		hint => qr/Name a node/);
	is(break_it('/b/unknown', 'true'), 't', 'which serves');
};

story 'the victim is told' => sub {
	foreach my $server ($a, $b)
	{
		on($server, 'victim')->query("BEGIN; SELECT zk_xact_lock('/b/victim')");
		queue($a, 'waiter', '/b/victim');
		$a->wait_queued($s{waiter});
		$server->settle;

		# The victim's server reads the mark before the node goes.
		my ($node) = $zk->children('/b/victim');
		$proxy->hold_request_of($admin, "SELECT zk_break_lock('/b/victim')", op => 'delete', path => "$node\$");
		like($shell->get("/b/victim/$node"), qr/^\{"zklock":"[\d.]+","broken_by":"role $user, process @{[$admin->pid]} of server a",/,
			'the node of ' . $server->name . ' is marked');
		wait_until { $zk->watched("/b/victim/$node", $server->session_id) } 'its server to have seen that' if $server == $b;
		$proxy->heal;
		is($admin->finish, 't', 'then it is deleted');
		is($s{waiter}->finish, 't', 'the lock is free');
		$server->wait_lock($s{victim}, 'lost', '/b/victim');
		fails($s{victim}->try('COMMIT'), '40001', 'and knows by whom', detail => 'Its node was deleted by zk_break_lock().');
		all_disconnect();
	}

	on($a, 'victim')->query("BEGIN; SELECT zk_xact_lock('/b/victim')");
	$shell->add_auth('digest', 'admin:secret');
	$shell->set_acl('/b/victim', [ [ 'digest', 'admin:secret', 'cdrwa' ], [ 'world', 'anyone', 'cr' ] ]);
	fails($admin->try("SELECT zk_break_lock('/b/victim')"), '42501', 'ZooKeeper refuses', detail => qr/ZNOAUTH/);
	my ($node) = $zk->children('/b/victim');
	$shell->delete("/b/victim/$node");
	$a->wait_lock($s{victim}, 'lost', '/b/victim');
	fails($s{victim}->try('COMMIT'), '40001', 'then somebody else did it', detail => 'Its node was deleted by someone else.');
	$shell->set_acl('/b/victim', [ [ 'world', 'anyone', 'cdrwa' ] ]);
};

story 'an answer that is lost' => sub {
	hold($b, 'holder', '/b/reply');
	my $mark = $a->log_mark;
	$proxy->lose_reply(op => 'delete', path => '^/b/reply/');
	is($admin->query("SELECT zk_break_lock('/b/reply')"), 't', 'it is known all the same that the node is deleted');
	$a->assert_log($mark, qr{deleted node "/b/reply/.*" by zk_break_lock\(\)}, 'and logged');
	all_disconnect();

	hold($b, 'holder', '/b/reply');
	$mark = $a->log_mark;
	$proxy->hold_reply_of($admin, "SELECT zk_break_lock('/b/reply')", op => 'delete', path => '^/b/reply/');
	is($admin->cancelled, '57014', 'a call that is cancelled then');
	$a->assert_log($mark, qr{CONTEXT: .* role "$user", process @{[$admin->pid]}, was deleting node "/b/reply/.*" of process @{[$s{holder}->pid]} of server b by zk_break_lock\(\), which may have been done},
		'is logged as well');
	$proxy->heal;
	lost($b, 'holder', '/b/reply');
};

story 'a session that is terminated before anything is done has nothing to do with the loss' => sub {
	on($a, 'victim')->query("BEGIN; SELECT zk_xact_lock('/b/ended')");
	my ($node) = $zk->children('/b/ended');
	# Its data cannot be marked.
	$shell->set_acl("/b/ended/$node", [ [ 'world', 'anyone', 'r' ] ]);
	my $session = $a->session(name => 'terminated');
	$proxy->hold_request_of($session, "SELECT zk_break_lock('/b/ended')", op => 'delete', path => '^/b/ended/');
	is($session->terminated, '57P01', 'the session ends');
	$proxy->drop;
	$a->wait_session;
	is(join(' ', $zk->children('/b/ended')), $node, 'the node is there');
	$shell->delete("/b/ended/$node");
	$a->wait_lock($s{victim}, 'lost', '/b/ended');
	fails($s{victim}->try('COMMIT'), '40001', 'somebody else did it', detail => 'Its node was deleted by someone else.');
};

$java->stop;
Zklock::Server->assert_clean($zk, [ $a, $b ], map { "/b/$_" } qw(local waits java slots/leases slots/locks holders permits/leases permits/locks victim reply ended));
done_testing;
