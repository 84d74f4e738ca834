# Copyright (c) 2026, zklock contributors
#
# zk_remove_stale_node() removes nothing unless the leader proves that the session is dead: a
# former leader, an incomplete list, and a ZooKeeper that cannot be asked prove nothing.

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
use Zklock::StaleNode;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone(stale_nodes => 1);
my $shell = $zk->shell;
my $proxy = Zklock::Proxy->start($zk);
my @conf  = ("zklock.session_timeout = '20s'");
my $a = Zklock::Server->new('a', zookeeper => $zk, conf => \@conf);
my $b = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
my $s = $a->session;

# Starts a server that answers srvr and dump, and nothing else. Its transactions go on by
# $step with each answer. Returns process and address.
sub impostor
{
	my ($step, $sessions) = @_;
	my $port    = PostgreSQL::Test::Cluster::get_free_port();
	my $process = Zklock::Process->new(
		name => 'impostor',
		log  => "$PostgreSQL::Test::Utils::log_path/287_stale_node_impostor.log",
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

subtest 'a leader that commits nothing, or lists sessions incompletely, is not believed' => sub {
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
};

subtest 'a call without a connection to ZooKeeper is an error' => sub {
	my $c = Zklock::Server->new('c', zookeeper => $proxy, conf => \@conf);
	my $name = stale($zk, '/st/stale');
	$proxy->cut;
	$c->wait_session('connecting');
	my $result = $c->session->try(call('/st/stale', $name));
	is($result->{sqlstate}, '58030', 'without a connection it is an error');
	$proxy->heal;
	$c->stop;
	is($s->query(call('/st/stale', $name)), 't', 'the node is removed at last');
};

subtest 'a call is an error if ZooKeeper does not allow to ask for sessions' => sub {
	# It answers the worker, but does not say which sessions live.
	my $mute = Zklock::ZooKeeper->standalone(stale_nodes => 1, conf => { '4lw.commands.whitelist' => 'srvr, mntr' });
	my $d = Zklock::Server->new('d', zookeeper => $mute, conf => \@conf);
	my $mute_name = stale($mute, '/st/stale');
	my $result = $d->session->try(call('/st/stale', $mute_name));
	is($result->{sqlstate}, '58000', 'a ZooKeeper that does not allow to ask for sessions');
	like($result->{hint} || '', qr/4lw\.commands\.whitelist/, 'the hint says what to do');
	ok($mute->shell->exists("/st/stale/$mute_name"), 'nothing is removed');
	$d->stop;
	$mute->stop;
};

Zklock::Server->assert_clean($zk, [ $a, $b ], map { "/st/$_" } qw(held stale));
$_->stop foreach $a, $b;
$proxy->stop;
$zk->stop;

my $ensemble = Zklock::ZooKeeper->ensemble(3, links => 1, stale_nodes => 1);
my $leader   = $ensemble->leader;
my ($follower) = $ensemble->followers;
my $e = Zklock::Server->new('e', zookeeper => $ensemble, conf => \@conf);
my $f = Zklock::Server->new('f', zookeeper => $follower->connect_string, conf => ["zklock.session_timeout = '2s'"]);
hold($f, 'holder', '/st/held');
my ($node) = map { $_->{node} } $f->locks("path = '/st/held'");

subtest 'in an ensemble only a session that no server knows of is dead' => sub {
	my $name = stale($ensemble, '/st/stale');
	$s = $e->session;
	fails($s, call('/st/held', $node), '55006', 'in an ensemble, a node of a session that lives', qr/lives/);
	# A leader that has not yet done what a quorum has committed is taken for a former one.
	wait_until { ($s->try(call('/st/stale', $name))->{text} || '') eq 't' } 'the stale node to be removed';
	wait_until { !$ensemble->children('/st/stale') } 'all servers to know that it is gone';
	pass('and one that is stale is gone');
	my $result = $f->session->try(call('/st/held', $node));
	is($result->{sqlstate}, '58030', 'who does not know of the leader cannot know');
	like($result->{detail} || '', qr/None of the servers that answer is the leader/, 'and says so');
};

subtest 'an isolated leader is not believed' => sub {
	# A leader that has been cut off takes a session for dead because it hears nothing of it.
	my $g = Zklock::Server->new('g', zookeeper => $leader->connect_string, conf => \@conf);
	my $id_f = $f->session_id;
	$leader->four_letter('dump') =~ /^\t$id_f$/m or die "no session $id_f";
	$ensemble->isolate($leader);
	wait_until { (split /ephemeral nodes dump/, $leader->four_letter('dump'))[0] !~ /^\t$id_f$/m || $leader->mode ne 'leader' }
	  'the isolated leader to forget the session';
	my $mark = $g->log_mark;
	my $result = $g->session->try(call('/st/held', $node));
	is($result->{sqlstate}, '58030', 'an isolated leader is not believed') or diag explain $result;
	unlike($g->log_since($mark), qr/removed node/, 'nothing is removed');
	$ensemble->rejoin($leader);
	$ensemble->wait_ready;
	all_disconnect();
	$_->wait_session foreach $e, $f, $g;
	Zklock::Server->assert_clean($ensemble, [ $e, $f, $g ], '/st/held', '/st/stale');
};

done_testing;
