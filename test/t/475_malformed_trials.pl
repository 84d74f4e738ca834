# Copyright (c) 2026, zklock contributors
#
# Settings that change are tried with servers whose answers make no sense: they are not taken
# up, and the session that runs, its worker and its locks are not touched.

use strict;
use warnings;

use Test::More;
use Zklock::Cast;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my $a     = Zklock::Server->new('a', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'"]);
hold($a, 'holder', '/t/held');
my $id     = $a->session_id;
my $before = holdings($a);
my $worker = $a->worker_pid;

# What a server answers to a client that connects: version, timeout, session, password, read-only.
sub handshake { my ($timeout, $session) = @_; return pack('l>2 q> l>/a* c', 0, $timeout, $session, 'p' x 16, 0); }

# A node without data: czxid mzxid ctime mtime version cversion aversion owner length children pzxid
sub node { my ($czxid, $mzxid) = @_; return pack('l>/a* q>4 l>3 q> l>2 q>', '', $czxid, $mzxid, 0, 0, 0, 0, 0, 7, 0, 0, $czxid); }

foreach my $case (
	[ 'a session has no id', 'The session has no id.',
		sub { $proxy->forge(op => 'connect', body => handshake(7000, 0)) } ],
	[ 'the first answer has an error code that is none', "Its error code is not one of ZooKeeper's.",
		sub { $proxy->deny(op => 'exists', code => 7, any => 1) } ],
	[ 'a node of ours was changed before it was created', 'The transaction numbers of the node are impossible.',
		sub { $proxy->forge(op => 'getData', body => node(9, 5)) } ],
	[ 'the answer for a node of ours has an error code that is none', "Its error code is not one of ZooKeeper's.",
		sub { $proxy->deny(op => 'getData', code => 7, any => 1) } ])
{
	my ($what, $text, $disturb) = @$case;
	subtest $what => sub {
		my $mark  = $a->log_mark;
		my $fault = $disturb->();
		$a->set_conf('zklock.servers' => $proxy->connect_string);
		$proxy->fired($fault);
		$a->assert_log($mark,
			qr/WARNING:  changed settings of zklock are not taken up: a server in "zklock\.servers" gives a malformed answer: \Q$text\E/,
			'the log tells');
		my $session = $a->zk_session;
		is("$session->{state} $session->{session_id}", "connected $id", 'the session goes on');
		is($session->{worker_pid}, $worker, 'in the same worker');
		is_deeply(holdings($a), $before, 'the lock is held');
	};
}

subtest 'with answers that make sense the settings are taken up' => sub {
	$proxy->clear;
	$a->set_conf('zklock.servers' => $proxy->connect_string);
	$a->wait_new_worker($worker);
	$a->wait_session;
	is($a->session_id, $id, 'the session goes on there');
	is_deeply(holdings($a), $before, 'the lock is held');
};

is($s{holder}->query("SELECT zk_unlock('/t/held')"), 't', 'in the end the lock is released');
all_disconnect();
$a->assert_clean($zk, '/t/held');
done_testing;
