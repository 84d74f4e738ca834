# Copyright (c) 2026, zklock contributors
#
# Connections that come to nothing: a server that hangs up right after the handshake, or
# before it; something at the port that is no ZooKeeper. The session and its locks live as
# long as they can, ZooKeeper is not stormed, and the log says once what is wrong.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Cast;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Shell;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone(conf => { maxClientCnxns => 8 });
my $proxy = Zklock::Proxy->start($zk);
my @conf  = ("zklock.session_timeout = '12s'", 'log_min_messages = debug1');
my $a     = Zklock::Server->new('a', zookeeper => $proxy, conf => \@conf);

# What the worker has to say, the lease aside.
sub told
{
	my ($mark) = @_;
	return grep { !/proved to be alive/ } $a->log_since($mark) =~ /zklock worker (?:LOG|WARNING): *(.*)$/mg;
}

subtest 'a server that hangs up right after the handshake' => sub {
	hold($a, 'holder', '/b/held');
	my $id = $a->session_id;
	my $reconnects = $a->zk_session->{reconnects};
	my $mark = $a->log_mark;
	$proxy->reset_counts;
	$proxy->hang_up(1);
	wait_until { $proxy->accepted >= 3 } 'three connections';
	my @at_first = told($mark);
	# The session lives on by the attempts alone, for longer than its timeout.
	my $since = $a->value('SELECT clock_timestamp()');
	$a->wait_value("SELECT clock_timestamp() > '$since'::timestamptz + interval '24s'", 't');
	cmp_ok($proxy->accepted, '<', 40, 'connections become rare');
	cmp_ok($proxy->accepted, '>', 5,  'but go on');
	my @told = told($mark);
	cmp_ok(scalar @told, '<=', 3, 'the log does not grow with them') or diag explain \@told;
	is($a->zk_session->{state}, 'connecting', 'they do not count as connections');
	is($a->zk_session->{reconnects}, $reconnects, 'not even in zk_session');
	like($a->zk_session->{last_error}, qr/accepts each connection and closes it.*jute\.maxbuffer/, 'which says what happens');
	my $result = on($a, 'asker')->try("SELECT zk_try_lock('/b/free')");
	like($result->{detail} || '', qr/jute\.maxbuffer/, 'as do errors');
	$proxy->hang_up(0);
	$a->wait_session;
	is($a->session_id, $id, 'when that has passed the session goes on');
	$s{holder}->query("SELECT zk_unlock('/b/held')");
	hold($a, 'holder', '/b/held');
	$s{holder}->query("SELECT zk_unlock('/b/held')");
};

subtest 'a server that hangs up before: it may have its limit of connections' => sub {
	my $mark = $a->log_mark;
	$proxy->cut;
	$a->wait_session('connecting');
	my @others = map { my $shell = Zklock::Shell->new; $shell->connect($zk->connect_string); $shell } 1 .. 8;
	$proxy->heal;
	wait_until { ($a->zk_session->{last_error} || '') =~ /closes new connections at once.*maxClientCnxns/ } 'the reason in zk_session';
	pass('zk_session says what that may be');
	$_->stop foreach @others;
	$a->wait_session;
	unlike(join("\n", told($mark), $a->zk_session->{last_error}), qr/retcode|errno/, 'in sentences');
};

subtest 'something else at the port is not taken for the end of the session' => sub {
	my $other = Zklock::Server->new('other', extension => 0, preload => 0, conf => ["listen_addresses = '127.0.0.1'"]);
	my $d = Zklock::Server->new('d', zookeeper => $proxy, conf => ["zklock.session_timeout = '60s'"]);
	hold($d, 'keeper', '/b/kept');
	my ($id, $mark, $expirations) = ($d->session_id, $d->log_mark, $d->zk_session->{expirations});
	$proxy->target($other->value('SHOW port'), raw => 1);
	$proxy->drop;
	$d->assert_log($mark, qr/LOG:  what answers at "zklock.servers" does not prove to be a ZooKeeper server/, 'the log tells');
	is($d->session_id, $id, 'the session is kept');
	$proxy->reset_counts;
	wait_until { $proxy->accepted > 6 } 'some attempts';
	is($d->session_id, $id, 'however often that is tried');
	is($d->zk_session->{expirations}, $expirations, 'nothing has expired');
	is(($d->locks)[0]{state} =~ /^(held|suspended)$/ ? 1 : 0, 1, 'the lock is not lost');
	my $lines = () = $d->log_since($mark) =~ /LOG:  what answers at/g;
	is($lines, 1, 'the log tells once');
	$proxy->target($zk);
	$d->wait_session;
	is($d->session_id, $id, 'with ZooKeeper there again it goes on');
	is($s{keeper}->query("SELECT zk_unlock('/b/kept')"), 't', 'and the lock with it');

	# Nor for the beginning of one.
	$proxy->target($other->value('SHOW port'), raw => 1);
	my $c = Zklock::Server->new('c', zookeeper => $proxy, connect => 0, conf => \@conf);
	$c->wait_log(qr/LOG:  what answers at "zklock.servers" does not prove to be a ZooKeeper server/, 0);
	is($c->zk_session->{$_}, undef, "a new server has no $_ from it") foreach qw(session_id negotiated_timeout lease_remaining);
	$proxy->target($zk);
	$c->wait_session;
	is(on($c, 'new')->query("SELECT zk_try_lock('/b/held')"), 't', 'with ZooKeeper there it begins one');
	(delete $s{$_})->disconnect foreach qw(new keeper);
	$c->stop;
	$d->stop;
};

subtest 'a session that has ended is still noticed at once' => sub {
	hold($a, 'holder', '/b/held');
	my ($id, $expirations) = ($a->session_id, $a->zk_session->{expirations});
	$a->expire_session($zk);
	ok($a->wait_lock($s{holder}, 'lost', '/b/held'), 'the lock is lost');
	wait_until { ($a->session_id || $id) ne $id } 'another session';
	is($a->zk_session->{expirations}, $expirations + 1, 'the expiration is counted');
	$a->wait_session;
	is($s{holder}->query("SELECT zk_unlock('/b/held')"), 'f', 'the holder hears it');
};

all_disconnect();
$a->assert_clean($zk, '/b/held', '/b/free');
done_testing;
