# Copyright (c) 2026, zklock contributors
#
# A lock's node has outlived its session, because of a bug in ZooKeeper. The server reports
# it, and zk_remove_stale_node() removes it, and nothing else.

use strict;
use warnings;

use Test::More;
use Zklock::Cast;
use Zklock::Server;
use Zklock::Shell;
use Zklock::StaleNode;
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone(stale_nodes => 1);
my $shell = $zk->shell;
my @conf  = ("zklock.session_timeout = '20s'");
my $a = Zklock::Server->new('a', zookeeper => $zk, conf => \@conf);
my $b = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
my $s = $a->session;

subtest 'zk_remove_stale_node is for those who may, with a name that makes sense' => sub {
	$a->value('CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
	my $monitor = $a->session(user => 'monitor');
	is($monitor->try(call('/st/a', name()))->{sqlstate}, '42501', 'pg_monitor does not do');
	$monitor->disconnect;
	fails($s, "SELECT zk_remove_stale_node(NULL, 'a')", '22004', 'no path');
	fails($s, "SELECT zk_remove_stale_node('/st/a', NULL)", '22004', 'no node');
	fails($s, call('st/a', name()), '22023', 'a bad path');
	fails($s, call('/st/a', $_), '22023', "not the name of a lock node: $_", qr/not the name of a lock node/)
	  foreach '', 'readme', 'a/b', name() . '/' . name(), '../' . name(), "\x01-lock-0000000000",
	  'x' x 1300 . '-lock-0000000000';
	is($s->query(call('/st/a', name())), 'f', 'there is no such path');
	$shell->create('/st/a', makepath => 1);
	is($s->query(call('/st/a', name())), 'f', 'there is no such node');
	my $name = name();
	$shell->create("/st/a/$name");
	fails($s, call('/st/a', $name), '42809', 'a node that is not ephemeral', qr/does not belong to a ZooKeeper session/);
	ok($shell->exists("/st/a/$name"), 'it is still there');
	$shell->delete("/st/a/$name");
};

subtest 'a node of a session that lives is left alone' => sub {
	hold($b, 'holder', '/st/held');
	queue($a, 'waiter', '/st/held');
	foreach my $server ($b, $a)
	{
		my ($node) = map { $_->{node} } $server->locks("path = '/st/held'");
		fails($s, call('/st/held', $node), '55006', 'a node of a session that lives: of ' . $server->name,
			qr/session @{[$server->session_id]} lives/);
		ok($shell->exists("/st/held/$node"), 'it is still there');
	}
	my $name = name(5);
	$shell->create("/st/held/$name", ephemeral => 1);
	fails($s, call('/st/held', $name), '55006', 'a node of another client', qr/session \S+ lives/);
	ok($shell->exists("/st/held/$name"), 'it is still there');
	$shell->delete("/st/held/$name");
	$s{holder}->query("SELECT zk_unlock('/st/held')");
	is($s{waiter}->finish, 't', 'the locks are well');
	all_disconnect();
};

subtest 'no session of a crowd that comes and goes is taken for dead' => sub {
	# A whole crowd of sessions that come and go: none is taken for dead.
	my @crowd = map { Zklock::Shell->new(name => "crowd$_") } 1 .. 3;
	$_->connect($zk->connect_string) foreach @crowd;
	foreach my $i (1 .. 10)
	{
		foreach my $client (@crowd)
		{
			my $name = name($i);
			$client->create("/st/held/$name", ephemeral => 1);
			fails($s, call('/st/held', $name), '55006', "a live session, round $i");
			$client->delete("/st/held/$name");
		}
	}
	$_->close_connection foreach @crowd;
};

subtest 'a stale node is removed, and the lock behind it granted' => sub {
	my $name = stale($zk, '/st/stale');
	queue($a, 'waiter', '/st/stale');
	$a->wait_value("SELECT blocked_by_node FROM zk_locks WHERE path = '/st/stale'", $name);
	pass('a lock waits for a stale node');
	my $mark = $b->log_mark;
	is($b->value(call('/st/stale', $name)), 't', 'it is removed, by another server');
	is($s{waiter}->finish, 't', 'and the lock is granted');
	$b->assert_log($mark, qr{LOG:  removed node "/st/stale/$name" of dead ZooKeeper session 0x123456789abcd},
		'the log tells of it');
	is($b->value(call('/st/stale', $name)), 'f', 'a second time there is nothing to remove');
	all_disconnect();
};

subtest 'a stale node that may not be deleted stays' => sub {
	# A node that may not be deleted.
	$shell->add_auth('digest', 'admin:secret');
	$shell->create('/st/forbidden', acl => [ [ 'digest', 'admin:secret', 'cdrwa' ], [ 'world', 'anyone', 'cr' ] ]);
	my $name = stale($zk, '/st/forbidden');
	fails($s, call('/st/forbidden', $name), '42501', 'a stale node that may not be deleted', qr/ZNOAUTH/);
	$shell->delete("/st/forbidden/$name");
};

subtest 'a stale node of a former session of this server is reported once, and can be removed' => sub {
	my $id = $a->session_id;
	$a->expire_session($zk);
	$a->wait_value("SELECT state = 'connected' AND session_id <> '$id' FROM zk_session", 't');
	my $name = stale($zk, '/st/own', $id);
	my $mark = $a->log_mark;
	queue($a, "waiter$_", '/st/own') foreach 1 .. 2;
	$a->wait_log(qr{LOG:  node "$name" of lock "/st/own" belongs to ZooKeeper session $id of this server, which has ended}, $mark);
	$a->assert_log($mark, qr/HINT:  .*zk_remove_stale_node/, 'a stale node of our own is reported, with a hint');
	$s{waiter1}->cancel;
	$s{waiter1}->result;
	$a->restart_worker;
	$a->wait_log(qr/which has ended.*connected to ZooKeeper server.*which has ended/s, $mark);
	$a->wait_session;
	is($s->query(call('/st/own', $name)), 't', 'it can be removed');
	is($s{waiter2}->finish, 't', 'which helps');
	my $reports = () = $a->log_since($mark) =~ /which has ended/g;
	is($reports, 2, 'each worker has reported it once');
	all_disconnect();
};

subtest 'a stale node of a session left behind by a crash can be removed' => sub {
	my $id   = $a->session_id;
	my $mark = $a->log_mark;
	$s->disconnect;
	kill 'KILL', on($a, 'victim')->pid;
	$a->wait_log(qr/ended ZooKeeper session $id/, $mark);
	$a->wait_session;
	all_disconnect();
	$s    = $a->session;
	my $name = stale($zk, '/st/own', $id);
	queue($a, 'waiter', '/st/own');
	$a->wait_log(qr/"$name" .* session $id of this server, which has ended/, $mark);
	is($s->query(call('/st/own', $name)), 't', 'so is one of a session left behind by a crash');
	is($s{waiter}->finish, 't', 'and removed');
	all_disconnect();
};

# As soon as it waits: what is cancelled earlier is not this call.
sub ask
{
	my ($session, $node) = @_;
	$session->query_start(call('/st/stale', $node));
	$a->wait_value("SELECT wait_event_type FROM pg_stat_activity WHERE pid = @{[$session->pid]}", 'Extension');
	return;
}

subtest 'a call that waits for ZooKeeper can be cancelled, and fails when the worker ends' => sub {
	my $name = stale($zk, '/st/stale');
	$zk->pause;
	my @asker = map { $a->session } 1 .. 3;
	ask($asker[0], name());
	ask($_, $name) foreach @asker[ 1, 2 ];
	$asker[0]->cancel;
	is($asker[0]->result->{sqlstate}, '57014', 'a call that waits for ZooKeeper can be cancelled');
	$asker[1]->terminate;
	is($asker[1]->result->{sqlstate}, '57P01', 'and terminated');
	ok($asker[2]->busy, 'the next one waits');
	$zk->resume;
	is($asker[2]->finish, 't', 'and is served, with the answer to its own question');
	is($s->query(call('/st/stale', $name)), 'f', 'later ones as well');

	$zk->pause;
	ask($s, $name);
	my $worker = $a->worker_pid;
	$a->value("SELECT pg_terminate_backend($worker)");
	is($s->result->{sqlstate}, '58030', 'a worker that is terminated leaves the question to the next one');
	$zk->resume;
	$a->wait_session;
	is($s->query(call('/st/stale', $name)), 'f', 'which then serves later ones');
	$_->disconnect foreach @asker;
};

Zklock::Server->assert_clean($zk, [ $a, $b ], map { "/st/$_" } qw(a held stale forbidden own));
done_testing;
