# Copyright (c) 2026, zklock contributors
#
# What is published of waits that last: nothing without need, and nothing is left behind, whatever
# becomes of replies, workers and sessions. Clients of another make block, but are no victims. And
# whatever others write there, nobody who waits rightly gives up, and nothing crashes.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::Deadlock;
use Zklock::JavaPeer;

my ($zk, $proxy, $a, $b) = cast('a b', zk => { request_log => 1 }, proxied => 'b', conf => ["deadlock_timeout = '100ms'"], b => { faults => '' });
my ($a1, $a2, $b1, $b2) = (sessions($a, 'a1 a2'), sessions($b, 'b1 b2'));
my $root = '/zklock-waits';
my $sh   = $zk->shell;
$asks = 'zk_lock';
Zklock::Deadlock::scene($zk, [ $a, $b ], '/r/a', '/r/b', '/r/c', '/r/s/leases', $root);

sub records { return $zk->children($root); }

# What the only record tells; "" while another one takes its place
sub told
{
	my @names = records();
	return @names == 1 ? eval { $zk->shell->get("$root/$names[0]") } // '' : '';
}

sub exists_root { return scalar grep { $_ eq 'zklock-waits' } $zk->children('/'); }

# b1 holds one lock and waits for another one, which a1 has, and that is told.
sub published
{
	steps('a1 has /r/a, b1 has /r/b, b1 wants /r/a');
	return wait_until { (records())[0] } 'a record';
}

# Tests: one after the other gets what it waits for, and lets go of all it has.
sub served(@sessions)
{
	foreach my $session (@sessions)
	{
		is($session->finish, 't', $session->name . ' is served');
		$session->query('SELECT zk_unlock_all()');
	}
	return;
}

sub end_of_wait(@more)
{
	is($a1->query('SELECT zk_unlock_all()'), '', 'the other one lets go');
	served($b1, @more);
	clean();
	return;
}

# Until servers have looked so often what others tell.
sub look($times)
{
	my $mark = $zk->mark;
	return wait_until { ($zk->requests($mark)->{sync} // 0) >= $times } 'the servers to look several times';
}

# What is told of a wait goes when the wait ends, and so it does after something.
sub so_it_does($when, $code) { subtest "so it does $when" => sub { $code->(); end_of_wait(); }; return; }

subtest 'nothing is written for waits in which nobody can have part in a deadlock' => sub {
	steps('a1 has /r/a');
	my $mark = $zk->mark;
	steps('a2 wants /r/a, b1 wants /r/a');
	is($b2->query("SELECT zk_lock('/r/a', '1s')"), 'f', 'two sessions that hold nothing wait for long, and a third');
	$a1->query("SELECT zk_unlock('/r/a')");
	served($a2, $b1);
	ok(!exists_root(), "there is no $root");
	is(scalar(grep { ($_->{path} // '') =~ /^$root/ } $zk->request_list($mark)), 0, 'and it was not asked for');
	clean();
};

subtest 'what is told of a wait goes when the wait ends' => sub {
	my $name = published();
	my $data = $zk->shell->get("$root/$name");
	like($data, qr/^zklock waits 1\t0\t0\t0\t\tb\nwait\t[0-9a-f]+\t@{[ $b1->pid ]}\t0\t/, 'who waits');
	like($data, qr/\t\/r\/a\/_c_.*-lock-\d{10}\tExclusiveLock on ZooKeeper path "\/r\/a"\nheld\t0\t0\t0\t\/r\/b\/_c_.*\t\n$/, 'with which node, for what, and what it holds');
	is($zk->shell->stat("$root/$name")->{ephemeralOwner}, $b->session_id, 'in a node of its session');
	like($name, qr/^0*@{[ $b->session_id =~ s,0x,,r ]}-[0-9a-f]{8}$/, 'with its id');
	end_of_wait();
};

subtest 'a name that would break the form of a record is told in another one' => sub {
	$b->set_conf('zklock.server_name' => "b\t" . "\x{20ac}" x 200);
	wait_until { $b1->query('SHOW zklock.server_name') ne '' } 'the session to know the name';
	my $data = $zk->shell->get("$root/" . published());
	my ($told) = $data =~ /^zklock waits 1\t0\t0\t0\t\t([^\t\n]*)\n/;
	is($told, 'b ' . "\x{20ac}" x 170, 'without a tab, of 512 bytes at most, and whole characters');
	end_of_wait();
	$b->set_conf('zklock.server_name' => '');
};

so_it_does('after a restart of the worker', sub {
	published();
	$b->restart_worker;
	$b->wait_session;
});

foreach my $lose (qw(lose_reply lose_request))
{
	so_it_does("after a $lose of its creation", sub {
		my $fault = $proxy->$lose(op => 'create2', path => "^$root/");
		published();
		ok($proxy->fired($fault), 'it is lost');
		wait_until { told() =~ /^held\t/m } 'one record again';
	});
	subtest "so it does after a $lose of what replaces it" => sub {
		published();
		my $fault = $proxy->$lose(op => 'multi', path => "^$root/");
		steps('b2 has /r/c, b2 wants /r/a');
		ok($proxy->fired($fault), 'it is lost');
		wait_until { 2 == (() = told() =~ /^wait\t/mg) } 'one record of both waits';
		end_of_wait($b2);
	};
	subtest "so it does after a $lose of its deletion" => sub {
		published();
		my $fault = $proxy->$lose(op => 'delete', path => "^$root/");
		end_of_wait();
		ok($proxy->fired($fault), 'it is lost');
	};
}

subtest 'so it does when ZooKeeper has refused to delete it for a while' => sub {
	published();
	$zk->shell->set_acl($root, [ [ 'world', 'anyone', 'cra' ] ]);
	$proxy->reset_counts;
	is($a1->query('SELECT zk_unlock_all()'), '', 'the other one lets go');
	served($b1);
	wait_until { grep { $_->[0] eq 'delete' && $_->[1] =~ /^$root/ } @{ $proxy->requests } } 'it to be asked for';
	is(scalar(records()), 1, 'the record is still there');
	$zk->shell->set_acl($root, [ [ 'world', 'anyone', 'cdrwa' ] ]);
	clean();
};

subtest 'a session whose record ZooKeeper refuses to delete can offer no element, and is told why at once' => sub {
	published();
	$zk->shell->set_acl($root, [ [ 'world', 'anyone', 'cra' ] ]);
	is($a1->query('SELECT zk_unlock_all()'), '', 'the other one lets go');
	served($b1);
	fails($b1->try("SELECT zk_queue_offer('/r/queue', 'element')"), '42501', 'refused', hint => qr{"/zklock-waits"});
	$zk->shell->set_acl($root, [ [ 'world', 'anyone', 'cdrwa' ] ]);
	clean();
};

so_it_does('with the ZooKeeper session, and is told again in the next', sub {
	published();
	my $before = $b->session_id;
	my $session;
	$b->expire_session($zk);
	wait_until { ($session = $b->session_id) && $session ne $before } 'the next session';
	$b->wait_session;
	$b1->cancelled;
	$b1->query('SELECT zk_unlock_all()');
	steps('b1 has /r/b, b1 wants /r/a');
	wait_until { grep { /@{[ $session =~ s,0x,,r ]}/ } records() } 'a record of the new session';
});

subtest 'what somebody deletes is told anew, and that is no refusal' => sub {
	my $mark = $b->log_mark;
	$b1->query("SET zklock.parent_nodes = 'existing'");    # the server's counts
	my $name = published();
	foreach my $round (1 .. 10)
	{
		eval { $sh->delete("$root/$name") };
		eval { $sh->delete($root) } if $round % 2;
		wait_until { my @names = eval { records() }; @names == 1 && $names[0] ne $name && ($name = $names[0]) } 'another record';
	}
	end_of_wait();
	$b1->query('RESET zklock.parent_nodes');
	unlike($b->log_since($mark), qr/could not/, 'the log has none');
};

subtest 'what a server may not tell, its log says once, and it is told when it may be' => sub {
	my $mark = $b->log_mark;
	my $refusal = qr/LOG:  could not create nodes below ZooKeeper node "$root": .*\n.*DETAIL:  Deadlocks across servers are not found\./;
	$sh->create($root) unless exists_root();
	$sh->set_acl($root, [ [ 'world', 'anyone', 'ra' ] ]);
	$a1->query("SELECT zk_lock('/r/a')");
	$b1->query("SELECT zk_lock('/r/b')");
	$_->query_start("SELECT zk_lock('/r/a')") foreach $b1, $b2;
	$b->assert_log($mark, $refusal, 'the log says so');
	look(6);
	$b1->cancel;
	is($b1->result->{sqlstate}, '57014', 'the session that searches waits no more');
	$b1->query_start("SELECT zk_lock('/r/a')");
	look(6);
	is(scalar(() = $b->log_since($mark) =~ /$refusal/g), 1, 'another one does not say it again');
	$sh->set_acl($root, [ [ 'world', 'anyone', 'cdrwa' ] ]);
	wait_until { records() } 'a record';
	is($a1->query('SELECT zk_unlock_all()'), '', 'the other one lets go');
	served($b2, $b1);
	clean();
};

subtest 'a Java holder in the chain, and no circle: nobody gives up' => sub {
	my $java = Zklock::JavaPeer->new;
	$java->connect($zk->connect_string);
	is($java->acquire('j', '/r/a', 5000), 1, 'a Java service holds a lock');
	steps('a1 has /r/b, b1 has /r/c, a1 wants /r/a, b1 wants /r/b');
	wait_until { records() == 2 } 'both servers to tell';
	is($b2->query("SELECT zk_lock('/r/c', '1s')"), 'f', 'a third session waits for them, for a while');
	ok($_->busy, $_->name . ' waits') foreach $a1, $b1;
	$java->release('j');
	served($a1, $b1);

	# Now it waits itself, between a reader and one of the same server that it keeps back.
	$_->query("BEGIN") foreach $a1, $a2;
	$a1->query("SELECT zk_xact_lock_shared('/r/a')");
	my $id = $java->acquire_start('j', '/r/a');
	wait_until { $zk->children('/r/a') == 2 } 'the Java service to wait';
	$a2->query("SELECT zk_xact_lock('/r/b')");
	$a2->start_queued("SELECT zk_xact_lock_shared('/r/a')", '/r/a');
	$a1->query_start("SELECT zk_xact_lock('/r/b')");
	one_victim([ $a1, zk('/r/b'), $a2, zk('/r/a', 'Share') . ' behind another contender' ], 'across');
	is($java->result($id), 1, 'the Java service is served');
	$java->release('j');
	$java->stop;
	clean();
};

# A session of a waits for one of b, and that for another session of a: a forged record need only claim that its
# session keeps b's from letting go to close a circle that is none.
my $ours = $sh->session->[0] =~ s/^0x//r;
my $id   = ('0' x (16 - length $ours)) . $ours;
my $n    = 0;

# The name of a record that our own session may write
sub name { return sprintf('%s/%s-%08x', $root, $id, $n++); }

sub wait_of($path, $node, @held)
{
	return join("\n", "wait\t" . (5 + $n) . "\t1\t0\t$path/$node\tx", map { "held\t0\t0\t0\t$_\t" } @held) . "\n";
}
# A deadlock of a1 and b1, of which b1 is to give up, and a crowd of one behind it.
sub deadlock_with_a_crowd
{
	steps('a1 has /r/a, b1 has /r/b, b2 has /r/c, a1 wants /r/b');
	wait_until { records() == 1 } 'the first server to tell';
	steps('b1 wants /r/a, b2 wants /r/a');
	return;
}

sub end_of_crowd
{
	gives_up('b1 a1');
	$_->query('SELECT zk_unlock_all()') foreach $b1;
	served($a1, $b2);
	clean();
	return;
}

subtest 'a deadlock is found though the crowd behind it is another one at each look' => sub {
	my $hold = sub ($nth) { return $proxy->hold_request(op => 'getChildren', path => "^$root\$", nth => $nth); };
	my $look = $hold->(1);
	deadlock_with_a_crowd();
	foreach my $round (1 .. 12)
	{
		wait_until { !$b1->busy || $proxy->has_fired($look) } 'the server to begin to look';
		last unless $b1->busy;
		look(4);    # the other server
		is($b2->cancelled, '57014', "round $round: one of the crowd goes");
		steps('b2 wants /r/a');
		$look = $hold->(2);    # the one that is held now passes
		$proxy->heal;
	}
	ok(!$b1->busy, 'it has been found meanwhile');
	$proxy->clear;
	$proxy->heal;
	end_of_crowd();
};

subtest 'a deadlock is found though there is more to ask about the crowd behind it than is asked for' => sub {
	$b->set_faults('few-facts');
	deadlock_with_a_crowd();
	end_of_crowd();
	$b->set_faults('');
};


sub record(@waits) { return "zklock waits 1\t7fffffffffffffff\t0\t0\t\tforged\n" . join('', @waits); }

# All of these wait on while the servers go round several times.
sub nobody_gives_up(@sessions)
{
	look(12);
	ok($_->busy, $_->name . ' waits') foreach @sessions;
	is($_->zk_session->{state}, 'connected', 'the worker of ' . $_->name . ' runs') foreach $a, $b;
	return;
}

my @workers = map { $_->worker_pid } $a, $b;

subtest 'records that are none, or claim what is not so' => sub {
	steps('a1 has /r/a, b1 has /r/b, b2 has /r/c, a2 has /r/d');
	# Ours is older than what waits behind it: it would not be the one to give up.
	my $behind = $sh->create('/r/a/_c_00000000-0000-0000-0000-000000000000-lock-', ephemeral => 1, sequence => 1);
	my ($behind_name) = $behind =~ m,([^/]+)$,;
	steps('b1 wants /r/c, a1 wants /r/b, b2 wants /r/d');
	wait_until { records() == 2 } 'both servers to publish';
	my %node   = map { my ($session, $path) = @$_; ("$session->{name} $path" => $session->wait_row('true', $path)->{node}) }
	  ([ $a1, '/r/a' ], [ $a1, '/r/b' ], [ $b1, '/r/b' ], [ $b1, '/r/c' ], [ $b2, '/r/c' ]);
	my $good   = $sh->get("$root/" . ($zk->children($root))[0]);
	# test/unit/test_wait_search.c has more of what is no record.
	$sh->create(name(), data => record(map { wait_of('/r/b', "n-$_", "/r/b/n-$_") } 1 .. 300), ephemeral => 1);
	$sh->create(name(), hex => '00ff0a09' x 2000, ephemeral => 1);
	$sh->create(name(), hex => unpack('H*', $good) . '00', ephemeral => 1);
	$sh->create(name(), data => 'x' x 900_000, ephemeral => 1);
	$sh->create(name(), data => $good);    # of nobody's session
	$sh->create("$root/$_", data => $good, ephemeral => 1)
	  foreach 'x', 'lock-0000000001', '_c_00000000-0000-0000-0000-000000000000-lock-0000000001', ('f' x 16) . '-00000001', 'g' x 25;
	# In the names of others' sessions
	foreach my $record ($zk->children($root))
	{
		my ($of) = $record =~ /^([0-9a-f]{16})-/ or next;
		next if $of eq $id || $of eq 'f' x 16;
		$sh->create("$root/$of-ffffffff", data => record(wait_of('/r/a', $behind_name, "/r/b/$node{'b1 /r/b'}")), ephemeral => 1);
		wait_until { !grep { $_ eq "$of-ffffffff" } $zk->children($root) } 'a server to delete what has its name';
	}
	# They claim that another's node is theirs, or one that does not exist, and waits for what the
	# circle needs. Of a session only the newest record counts: this is the one.
	$sh->create(name(), ephemeral => 1, data => record(
		wait_of('/r/a', $behind_name, "/r/b/$node{'b1 /r/b'}"),
		wait_of('/r/a', $behind_name, "/r/b/_c_00000000-0000-0000-0000-000000000000-lock-0000000000"),
		wait_of('/r/a', '_c_00000000-0000-0000-0000-000000000000-lock-0999999999', "/r/b/$node{'b1 /r/b'}")));
	nobody_gives_up($a1, $b1, $b2);
	$sh->delete("$root/$_") foreach grep { !/^0*@{[ $a->session_id =~ s,0x,,r ]}-|^0*@{[ $b->session_id =~ s,0x,,r ]}-/ } $zk->children($root);
	$sh->delete($behind);
	$a2->query('SELECT zk_unlock_all()');
	served($b2, $b1, $a1);
	clean();
};

subtest 'a record that is stale, since its server has been stopped' => sub {
	published();
	freeze($b->worker_pid);
	is($b1->cancelled, '57014', 'the wait ends, but the record stays');
	steps('a1 wants /r/b');
	wait_until { records() == 2 } 'the other server to publish its own';
	look(12);
	ok($a1->busy, 'nobody gives up');
	thaw($b->worker_pid);
	is($b1->query("SELECT zk_unlock('/r/b')"), 't', 'when it is back, and lets go');
	served($a1);
	clean();
};

subtest 'a record in the name of a server that is stopped, which has the nodes it names' => sub {
	steps('a1 has /r/a, b1 has /r/b, a2 wants /r/b, b1 wants /r/a');
	wait_until { records() == 1 } 'the other server to tell of its wait';
	my ($holds, $waits) = ($a1->wait_row('true', '/r/a')->{node}, $a2->wait_row('true', '/r/b')->{node});
	my $of = substr('0' x 16 . ($a->session_id =~ s/^0x//r), -16);
	freeze($a->worker_pid);
	$sh->create("$root/$of-ffffffff", data => record(wait_of('/r/b', $waits, "/r/a/$holds")), ephemeral => 1);
	my $mark = $zk->mark;
	wait_until { ($zk->requests($mark)->{sync} // 0) >= 12 } 'it to look several times';
	ok($b1->busy, 'nobody gives up');
	thaw($a->worker_pid);
	$sh->delete("$root/$of-ffffffff");
	$a1->query('SELECT zk_unlock_all()');
	served($b1, $a2);
	clean();
};

subtest 'a deadlock is found in spite of what stands there' => sub {
	$sh->create(name(), data => record(wait_of('/r/a', 'n', "/r/b/n-$_")), ephemeral => 1) foreach 1 .. 100;
	$asks = 'zk_xact_lock';
	in_transactions($a1, $b1);
	steps('a1 has /r/a, b1 has /r/b, a1 wants /r/b, b1 wants /r/a');
	one_victim('a1 b1');
	$sh->delete("$root/$_") foreach grep { /^$id-/ } $zk->children($root);
	clean();
};

subtest 'a deadlock is found though another claims a permit that is part of it' => sub {
	in_transactions($a1, $b1);
	steps('a1 has /r/s:1, b1 has /r/b');
	my ($permit) = $zk->children('/r/s/leases');
	my $forged = name();
	$sh->create($forged, data => record("wait\t1\t1\t0\t\tx\nheld\t0\t0\t0\t/r/s/leases/$permit\t\n"), ephemeral => 1);
	steps('a1 wants /r/b');
	wait_until { records() == 2 } 'its server to tell, which has read what is forged before';
	steps('b1 wants /r/s:1');
	gives_up('b1 a1');
	go_on($a1);
	steps('a1 releases /r/s');
	$sh->delete($forged);
	clean();
};

is_deeply([ map { $_->worker_pid } $a, $b ], \@workers, 'the workers are those of the beginning');
done_testing();
