# Copyright (c) 2026, zklock contributors
#
# A lock's node has outlived its session, through a bug of ZooKeeper: that is reported,
# and zk_remove_stale_node() removes it, and nothing else.

use strict;
use warnings;

use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Cast;
use Zklock::Process;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone(stale_nodes => 1);
my $shell = $zk->shell;
my $proxy = Zklock::Proxy->start($zk);
my @conf  = ("zklock.session_timeout = '20s'");
my $a = Zklock::Server->new('a', zookeeper => $zk, conf => \@conf);
my $b = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
my $s = $a->session;

my $uuids = 0;
sub name { return sprintf('_c_00000000-0000-0000-0000-%012d-lock-%010d', ++$uuids, $_[0] || 0); }

# A node that is there although no such session is. Returns its name.
sub stale
{
	my ($path, %opt) = @_;
	my $name = name();
	my $on = $opt{on} || $zk;
	$on->shell->create($path, makepath => 1) unless $on->shell->exists($path);
	$on->stale_node("$path/$name", $opt{session} || '0x123456789abcd', $on->shell->stat($path)->{czxid});
	return $name;
}

sub call { my ($path, $node) = @_; return "SELECT zk_remove_stale_node('$path', '$node')"; }

sub fails
{
	my ($sql, $sqlstate, $name, $text) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = $s->try($sql);
	is($result->{sqlstate}, $sqlstate, $name) or diag $result->{error} || $result->{text};
	like(join("\n", map { $result->{$_} || '' } qw(message detail hint)), $text, 'which tells why') if $text;
	return;
}

# ---- who may, and what makes sense

$a->value('CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
my $monitor = $a->session(user => 'monitor');
is($monitor->try(call('/st/a', name()))->{sqlstate}, '42501', 'pg_monitor does not do');
$monitor->disconnect;
fails("SELECT zk_remove_stale_node(NULL, 'a')", '22004', 'no path');
fails("SELECT zk_remove_stale_node('/st/a', NULL)", '22004', 'no node');
fails(call('st/a', name()), '22023', 'a bad path');
fails(call('/st/a', $_), '22023', "not the name of a lock node: $_", qr/not the name of a lock node/)
  foreach '', 'readme', 'a/b', name() . '/' . name(), '../' . name(), "\x01-lock-0000000000",
  'x' x 1300 . '-lock-0000000000';
is($s->query(call('/st/a', name())), 'f', 'there is no such path');
$shell->create('/st/a', makepath => 1);
is($s->query(call('/st/a', name())), 'f', 'there is no such node');
my $name = name();
$shell->create("/st/a/$name");
fails(call('/st/a', $name), '42809', 'a node that is not ephemeral', qr/does not belong to a ZooKeeper session/);
ok($shell->exists("/st/a/$name"), 'it is still there');
$shell->delete("/st/a/$name");

# ---- locks that are held

hold($b, 'holder', '/st/held');
queue($a, 'waiter', '/st/held');
foreach my $server ($b, $a)
{
	my ($node) = map { $_->{node} } $server->locks("path = '/st/held'");
	fails(call('/st/held', $node), '55006', 'a node of a session that lives: of ' . $server->name,
		qr/session @{[$server->session_id]} lives/);
	ok($shell->exists("/st/held/$node"), 'it is still there');
}
$name = name(5);
$shell->create("/st/held/$name", ephemeral => 1);
fails(call('/st/held', $name), '55006', 'a node of another client', qr/session \S+ lives/);
ok($shell->exists("/st/held/$name"), 'it is still there');
$shell->delete("/st/held/$name");
$s{holder}->query("SELECT zk_unlock('/st/held')");
is($s{waiter}->finish, 't', 'the locks are well');
all_disconnect();

# A whole crowd of sessions that come and go: none is taken for dead.
my @crowd = map { Zklock::Shell->new(name => "crowd$_") } 1 .. 3;
$_->connect($zk->connect_string) foreach @crowd;
foreach my $i (1 .. 10)
{
	foreach my $client (@crowd)
	{
		$name = name($i);
		$client->create("/st/held/$name", ephemeral => 1);
		fails(call('/st/held', $name), '55006', "a live session, round $i");
		$client->delete("/st/held/$name");
	}
}
$_->close_connection foreach @crowd;

# ---- the real thing

$name = stale('/st/stale');
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

# A node that may not be deleted.
$shell->add_auth('digest', 'admin:secret');
$shell->create('/st/forbidden', acl => [ [ 'digest', 'admin:secret', 'cdrwa' ], [ 'world', 'anyone', 'cr' ] ]);
$name = stale('/st/forbidden');
fails(call('/st/forbidden', $name), '42501', 'a stale node that may not be deleted', qr/ZNOAUTH/);
$shell->delete("/st/forbidden/$name");

# ---- of a session of this server that is no more

my $id = $a->session_id;
$a->expire_session($zk);
$a->wait_value("SELECT state = 'connected' AND session_id <> '$id' FROM zk_session", 't');
$name = stale('/st/own', session => $id);
$mark = $a->log_mark;
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

$id   = $a->session_id;
$mark = $a->log_mark;
$s->disconnect;
kill 'KILL', on($a, 'victim')->pid;
$a->wait_log(qr/ended ZooKeeper session $id/, $mark);
$a->wait_session;
all_disconnect();
$s    = $a->session;
$name = stale('/st/own', session => $id);
queue($a, 'waiter', '/st/own');
$a->wait_log(qr/"$name" .* session $id of this server, which has ended/, $mark);
is($s->query(call('/st/own', $name)), 't', 'so is one of a session left behind by a crash');
is($s{waiter}->finish, 't', 'and removed');
all_disconnect();

# ---- questions that are given up

# As soon as it waits: what is cancelled earlier is not this call.
sub ask
{
	my ($session, $node) = @_;
	$session->query_start(call('/st/stale', $node));
	$a->wait_value("SELECT wait_event_type FROM pg_stat_activity WHERE pid = @{[$session->pid]}", 'Extension');
	return;
}

$name = stale('/st/stale');
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

# ---- a server that calls itself leader, but does not go on
#
# So does a leader that has been cut off, for a while.

# Starts a server that answers srvr and dump, and nothing else. Its transactions go on by
# $step with each answer. Returns process and address.
sub impostor
{
	my ($step, $sessions) = @_;
	my $port    = PostgreSQL::Test::Cluster::get_free_port();
	my $process = Zklock::Process->new(
		name => 'impostor',
		log  => "$PostgreSQL::Test::Utils::log_path/285_stale_node_impostor.log",
		argv => [
			'perl', '-MIO::Socket::INET', '-e', q{
				my ($port, $step, $sessions) = @ARGV;
				my $zxid     = 1;
				my $listener = IO::Socket::INET->new(
					LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 5, ReuseAddr => 1) or die $!;
				while (my $client = $listener->accept)
				{
					sysread($client, my $command, 4);
					syswrite($client, sprintf("Zookeeper version: 3.8.0\nZxid: 0x7f%08x\nMode: leader\nNode count: 1\n",
						$zxid += $step)) if $command eq 'srvr';
					syswrite($client, "SessionTracker dump:\n${sessions}ephemeral nodes dump:\nConnections dump:\n")
					  if $command eq 'dump';
				}}, $port, $step, $sessions ]);
	wait_until { IO::Socket::INET->new("127.0.0.1:$port") } 'the impostor';
	return ($process, "127.0.0.1:$port");
}

hold($b, 'holder', '/st/held');
my ($held) = map { $_->{node} } $b->locks("path = '/st/held'");
my $result;
foreach my $case (
	[ 0, "Session Sets (0)/(0):\n", qr/not the leader any more/, 'who calls itself leader, but commits nothing' ],
	[ 1, "Session Sets (2)/(3):\n2 expire at x:\n\t0x1\n\t0x2\n", qr/not completely/, 'a list that is not complete' ],
	[ 1, "Session Sets (2)/(2):\n2 expire at x:\n\t0x1\n\t0x1\n", qr/not completely/, 'nor is one with a session twice' ],
	[ 1, "Local Session Sets (0)/(0):\nGlobal Session Sets (1)/(1):\n", qr/not completely/, 'with local sessions neither' ],
	[ 1, "Session Sets (1)/(1):\n1 expire at x:\n\t@{[$b->session_id]}\n", qr/lives/, 'a session that is known' ])
{
	my ($step, $sessions, $reason, $what) = @$case;
	my ($impostor, $address) = impostor($step, $sessions);
	$a->set_conf('zklock.servers' => "$address," . $zk->connect_string);
	$a->wait_value("SELECT state = 'connected' AND current_setting('zklock.servers') LIKE '$address%' FROM zk_session", 't');
	wait_until { (($result = $s->try(call('/st/held', $held)))->{detail} || '') =~ $reason || $result->{ok} } $what;
	ok(!$result->{ok}, "$what: the function refuses");
	ok($shell->exists("/st/held/$held"), 'and the lock is safe');
	$impostor->stop;
}
$a->set_conf('zklock.servers' => $zk->connect_string);
$a->wait_session;
all_disconnect();

# ---- ZooKeeper cannot be asked

my $c = Zklock::Server->new('c', zookeeper => $proxy, conf => \@conf);
$name = stale('/st/stale');
$proxy->cut;
$c->wait_session('connecting');
$result = $c->session->try(call('/st/stale', $name));
is($result->{sqlstate}, '58030', 'without a connection it is an error');
$proxy->heal;
$c->stop;

# It answers the worker, but does not say which sessions live.
my $mute = Zklock::ZooKeeper->standalone(stale_nodes => 1, conf => { '4lw.commands.whitelist' => 'srvr, mntr' });
my $d = Zklock::Server->new('d', zookeeper => $mute, conf => \@conf);
my $mute_name = stale('/st/stale', on => $mute);
$result = $d->session->try(call('/st/stale', $mute_name));
is($result->{sqlstate}, '58000', 'a ZooKeeper that does not allow to ask for sessions');
like($result->{hint} || '', qr/4lw\.commands\.whitelist/, 'the hint says what to do');
ok($mute->shell->exists("/st/stale/$mute_name"), 'nothing is removed');
$d->stop;
$mute->stop;

is($s->query(call('/st/stale', $name)), 't', 'the node is removed at last');
Zklock::Server->assert_clean($zk, [ $a, $b ], map { "/st/$_" } qw(a held stale forbidden own));
$_->stop foreach $a, $b;
$proxy->stop;
$zk->stop;

# ---- an ensemble

my $ensemble = Zklock::ZooKeeper->ensemble(3, links => 1, stale_nodes => 1);
my $leader   = $ensemble->leader;
my ($follower) = $ensemble->followers;
my $e = Zklock::Server->new('e', zookeeper => $ensemble, conf => \@conf);
my $f = Zklock::Server->new('f', zookeeper => $follower->connect_string, conf => ["zklock.session_timeout = '2s'"]);
$name = stale('/st/stale', on => $ensemble);
hold($f, 'holder', '/st/held');
my ($node) = map { $_->{node} } $f->locks("path = '/st/held'");
$s = $e->session;
fails(call('/st/held', $node), '55006', 'in an ensemble, a node of a session that lives', qr/lives/);
# A leader that has not yet done what a quorum has committed is taken for a former one.
wait_until { ($s->try(call('/st/stale', $name))->{text} || '') eq 't' } 'the stale node to be removed';
pass('and one that is stale');
is(scalar($ensemble->children('/st/stale')), 0, 'is gone');
$result = $f->session->try(call('/st/held', $node));
is($result->{sqlstate}, '58030', 'who does not know of the leader cannot know');
like($result->{detail} || '', qr/None of the servers that answer is the leader/, 'and says so');

# A leader that has been cut off takes a session for dead because it hears nothing of it.
my $g = Zklock::Server->new('g', zookeeper => $leader->connect_string, conf => \@conf);
my $id_f = $f->session_id;
$leader->four_letter('dump') =~ /^\t$id_f$/m or die "no session $id_f";
$ensemble->isolate($leader);
wait_until { (split /ephemeral nodes dump/, $leader->four_letter('dump'))[0] !~ /^\t$id_f$/m || $leader->mode ne 'leader' }
  'the isolated leader to forget the session';
$mark = $g->log_mark;
$result = $g->session->try(call('/st/held', $node));
is($result->{sqlstate}, '58030', 'an isolated leader is not believed') or diag explain $result;
unlike($g->log_since($mark), qr/removed node/, 'nothing is removed');
$ensemble->rejoin($leader);
$ensemble->wait_ready;
all_disconnect();
$_->wait_session foreach $e, $f, $g;
Zklock::Server->assert_clean($ensemble, [ $e, $f, $g ], '/st/held', '/st/stale');
done_testing;
