# Copyright (c) 2026, zklock contributors
#
# Connections that begin with an answer that is wrong in one field. No lock is lost, and the
# log says what is wrong.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Cast;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk     = Zklock::ZooKeeper->standalone;
my $proxy  = Zklock::Proxy->start($zk);
my @conf   = ("zklock.session_timeout = '40s'");
my $a      = Zklock::Server->new('a', zookeeper => $proxy, conf => \@conf);
hold($a, 'holder', '/h/held');
my $id     = $a->session_id;
my $before = holdings($a);

# What a server answers to a client that connects: version, timeout, session, password, read-only.
sub handshake
{
	my ($password, $read_only) = @_;
	return pack('l>2 q> l>/a* c', 0, 40_000, hex($id =~ s/^0x//r), $password, $read_only);
}

# The session's password, as the worker keeps it for after a crash
my ($hex) = slurp_file($a->data_dir . '/pg_stat_tmp/zklock.session') =~ /\b([0-9a-f]{32})\b/ or die 'no password';
my $password = pack('H*', $hex);

foreach my $case (
	[ 'another password',     handshake('p' x 16, 0),  'The password of the session has changed.' ],
	[ 'a read-only session',  handshake($password, 1), 'The session is read-only.' ])
{
	my ($what, $body, $text) = @$case;
	subtest "a handshake brings $what" => sub {
		my $mark  = $a->log_mark;
		my $fault = $proxy->forge(op => 'connect', body => $body);
		$proxy->drop;
		$proxy->fired($fault);
		$a->wait_log(qr{worker restarts because of a malformed answer of ZooKeeper server .*: \Q$text\E}, $mark);
		$a->wait_session;
		$proxy->drop;
		$a->wait_log(qr/(?s:connected to.*){2}/, $mark);
		$a->wait_session;
		is($a->session_id, $id, 'the session goes on');
		is_deeply(holdings($a), $before, 'and the lock in it');
	};
}

subtest 'the first answer on a connection has an error code that is none' => sub {
	my $mark  = $a->log_mark;
	my $fault = $proxy->deny(op => 'multi', code => 7, any => 1);
	$proxy->drop;
	$proxy->fired($fault);
	$a->wait_log(qr{malformed answer of ZooKeeper server .*: Its error code is not one of ZooKeeper's\.}, $mark);
	$a->wait_session;
	is($a->session_id, $id, 'the session goes on');
	is_deeply(holdings($a), $before, 'and the lock in it');
};

subtest 'a server offers new sessions that cannot be' => sub {
	my $fault = $proxy->forge(op => 'connect', body => pack('l>2 q> l>/a* c', 0, 7000, 0, 'p' x 16, 0), times => 0);
	$proxy->reset_counts;
	my $b = Zklock::Server->new('b', zookeeper => $proxy, connect => 0, conf => \@conf);
	wait_until { $proxy->accepted > 4 } 'some attempts';
	my $log = $b->log_since(0);
	is(() = $log =~ /LOG:  malformed answer of ZooKeeper server .*: The session has no id\./g, 1, 'the log tells once');
	unlike($log, qr/restarts/, 'and no worker is started again for it');
	is($b->zk_session->{session_id}, undef, 'there is no session');
	$proxy->clear;
	$b->wait_session;
	is(on($b, 'new')->query("SELECT zk_try_lock('/h/new')"), 't', 'until a server offers one that can');
	(delete $s{new})->disconnect;
	$b->stop;
};

is($s{holder}->query("SELECT zk_unlock('/h/held')"), 't', 'in the end the lock is released');
all_disconnect();
$a->assert_clean($zk, '/h/held');
done_testing;
