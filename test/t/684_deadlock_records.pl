# Copyright (c) 2026, zklock contributors
#
# What is published of waits that last: nothing without need, and nothing is left behind, whatever
# becomes of replies, workers and sessions. Clients of another make block, but are no victims.

use Zklock::Test;
use Zklock::Deadlock;
use Zklock::JavaPeer;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'b',
	a => { conf => [ "deadlock_timeout = '100ms'", "cluster_name = 'a'" ] },
	b => { conf => [ "deadlock_timeout = '100ms'", "cluster_name = 'b'" ] });
my ($a1, $a2) = map { $a->session(name => $_) } qw(a1 a2);
my ($b1, $b2) = map { $b->session(name => $_) } qw(b1 b2);
my $root = '/zklock-waits';

sub records { return $zk->children($root); }
sub exists_root { return scalar grep { $_ eq 'zklock-waits' } $zk->children('/'); }
sub lock { my ($session, $path) = @_; is($session->query("SELECT zk_lock('$path')"), 't', $session->name . " holds $path"); return; }

sub waits
{
	my ($session, $path) = @_;
	$session->query_start("SELECT zk_lock('$path')");
	$session->server->wait_queued($session, $path);
	return;
}

# b1 holds one lock and waits for another one, which a1 has, and that is told.
sub published
{
	lock($a1, '/r/a');
	lock($b1, '/r/b');
	waits($b1, '/r/a');
	return wait_until { (records())[0] } 'a record';
}

sub end_of_wait
{
	is($a1->query('SELECT zk_unlock_all()'), '', 'the other one lets go');
	is($b1->finish, 't', 'the wait ends');
	$b1->query('SELECT zk_unlock_all()');
	return;
}

sub clean { return Zklock::Server->assert_clean($zk, [ $a, $b ], '/r/a', '/r/b', '/r/c', $root); }

subtest 'nothing is written for waits in which nobody can have part in a deadlock' => sub {
	lock($a1, '/r/a');
	my $mark = $zk->mark;
	waits($a2, '/r/a');
	waits($b1, '/r/a');
	is($b2->query("SELECT zk_lock('/r/a', '1s')"), 'f', 'two sessions that hold nothing wait for long, and a third');
	$a1->query("SELECT zk_unlock('/r/a')");
	is($a2->finish, 't', 'one is served');
	$a2->query("SELECT zk_unlock('/r/a')");
	is($b1->finish, 't', 'and the other');
	$b1->query("SELECT zk_unlock('/r/a')");
	ok(!exists_root(), "there is no $root");
	is(scalar(grep { ($_->{path} // '') =~ /^$root/ } $zk->request_list($mark)), 0, 'and it was not asked for');
	clean();
};

subtest 'what is told of a wait goes when the wait ends' => sub {
	my $name = published();
	my $data = $zk->shell->get("$root/$name");
	like($data, qr/^zklock waits 1\nserver\tb\nseen\t0\nwait\t[0-9a-f]+\t@{[ $b1->pid ]}\tExclusiveLock on ZooKeeper path "\/r\/a"\n/, 'who waits');
	like($data, qr/\nnode\t0\t\/r\/a\t_c_.*-lock-\d{10}\nheld\t\/r\/b\t_c_.*\n$/, 'with which node, and what it holds');
	is($zk->shell->stat("$root/$name")->{ephemeralOwner}, $b->session_id, 'in a node of its session');
	like($name, qr/^0*@{[ $b->session_id =~ s,0x,,r ]}-[0-9a-f]{8}$/, 'with its id');
	end_of_wait();
	clean();
};

subtest 'a name that would break the form of a record is told in another one' => sub {
	$b->set_conf('zklock.server_name' => "b\t" . "\x{20ac}" x 200);
	wait_until { $b1->query('SHOW zklock.server_name') ne '' } 'the session to know the name';
	my $data = $zk->shell->get("$root/" . published());
	my ($told) = $data =~ /^server\t([^\t\n]*)\n/m;
	is($told, 'b ' . "\x{20ac}" x 170, 'without a tab, of 512 bytes at most, and whole characters');
	end_of_wait();
	$b->set_conf('zklock.server_name' => '');
	clean();
};

subtest 'so it does after a restart of the worker' => sub {
	published();
	$b->restart_worker;
	$b->wait_session;
	end_of_wait();
	clean();
};

foreach my $lose (qw(lose_reply lose_request))
{
	subtest "so it does after a $lose of its creation" => sub {
		my $fault = $proxy->$lose(op => 'create2', path => "^$root/");
		published();
		ok($proxy->fired($fault), 'it is lost');
		wait_until { records() == 1 && $zk->shell->get("$root/" . (records())[0]) =~ /^held\t/m } 'one record again';
		end_of_wait();
		clean();
	};
	subtest "so it does after a $lose of its deletion" => sub {
		published();
		my $fault = $proxy->$lose(op => 'delete', path => "^$root/");
		end_of_wait();
		ok($proxy->fired($fault), 'it is lost');
		clean();
	};
}

subtest 'so it does with the ZooKeeper session, and is told again in the next' => sub {
	my $name = published();
	my $before = $b->session_id;
	my $session;
	$b->expire_session($zk);
	wait_until { ($session = $b->session_id) && $session ne $before } 'the next session';
	$b->wait_session;
	$b1->cancel;
	$b1->result;
	$b1->query('SELECT zk_unlock_all()');
	lock($b1, '/r/b');
	waits($b1, '/r/a');
	wait_until { grep { /@{[ $session =~ s,0x,,r ]}/ } records() } 'a record of the new session';
	end_of_wait();
	clean();
};

subtest 'a path for records is none for locks' => sub {
	foreach my $path ($root, "$root/x")
	{
		is($a1->try("SELECT zk_lock('$path')")->{detail}, "The paths \"$root\" and \"/zklock-receipts\", and all paths below them, are reserved for zklock.", $path);
	}
};

subtest 'a Java holder in the chain, and no circle: nobody gives up' => sub {
	my $java = Zklock::JavaPeer->new;
	$java->connect($zk->connect_string, 10000);
	is($java->acquire('j', '/r/a', 5000), 1, 'a Java service holds a lock');
	lock($a1, '/r/b');
	lock($b1, '/r/c');
	waits($a1, '/r/a');
	waits($b1, '/r/b');
	wait_until { records() == 2 } 'both servers to tell';
	is($b2->query("SELECT zk_lock('/r/c', '1s')"), 'f', 'a third session waits for them, for a while');
	ok($_->busy, $_->name . ' waits') foreach $a1, $b1;
	$java->release('j');
	is($a1->finish, 't', 'the first goes on');
	$a1->query('SELECT zk_unlock_all()');
	is($b1->finish, 't', 'and the second');
	$b1->query('SELECT zk_unlock_all()');

	# Now it waits itself, between a reader and one of the same server that it keeps back.
	$_->query("BEGIN") foreach $a1, $a2;
	$a1->query("SELECT zk_xact_lock_shared('/r/a')");
	my $id = $java->acquire_start('j', '/r/a');
	wait_until { $zk->children('/r/a') == 2 } 'the Java service to wait';
	$a2->query("SELECT zk_xact_lock('/r/b')");
	$a2->start_queued("SELECT zk_xact_lock_shared('/r/a')", '/r/a');
	$a1->query_start("SELECT zk_xact_lock('/r/b')");
	one_victim([ $a1, $a2 ], [ $a1, 'ExclusiveLock on ZooKeeper path "/r/b"', $a2, 'ShareLock on ZooKeeper path "/r/a" behind another contender' ], 'across');
	is($java->result($id), 1, 'the Java service is served');
	$java->release('j');
	$java->stop;
	clean();
};

done_testing();
