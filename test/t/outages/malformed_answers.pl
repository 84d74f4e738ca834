# Copyright (c) 2026, zklock contributors
#
# Answers of a ZooKeeper server that make no sense, and connections that begin with an answer that is wrong
# in one field: nobody crashes, and nobody loses a lock. The worker starts again and continues its session
# on another connection. Which answers make no sense is in test/unit/test_zk_answer.c.

use Zklock::Test;
use PostgreSQL::Test::Utils;

my ($zk, $proxy, $server) = cast('a', proxied => 'a', timeout => '40s');
my $id     = $server->session_id;
my $start  = $server->log_mark;
my $s      = $server->session;
my $holder = $server->session;
is($holder->query("SELECT zk_lock('/m/held')"), 't', 'a lock is held meanwhile');
my $token = $holder->query("SELECT zk_fencing_token('/m/held')");

sub string { return pack('l>/a*', $_[0]); }

# czxid mzxid ctime mtime version cversion aversion owner length children pzxid
sub node_stat($czxid, $mzxid, $owner) { return pack('q>4 l>3 q> l>2 q>', $czxid, $mzxid, 0, 0, 0, 0, 0, $owner, 0, 0, $czxid); }

my $own = hex($id =~ s/^0x//r);

# What a server answers to a client that connects: version, timeout, session, password, read-only.
sub handshake($timeout, $session, $password = undef, $read_only = undef)
{
	return pack('l>2 q> l>/a* c', 0, $timeout, $session, $password // 'p' x 16, $read_only // 0);
}

# What the body of an answer is instead, or the error code, and what the log says of it. There is a lock after all.
my @list    = (op => 'getChildren', path => '^/m/lock$');
my @create  = (op => 'create2', path => '^/m/lock/');
my $fewer   = 'There are fewer children than announced.';
foreach my $case (
	[ 'five children are announced and none is sent', $fewer, @list, body => pack('l>', 5) ],
	[ 'two children are announced and one is sent',   $fewer, @list, body => pack('l>', 2) . string('x-0000000001') ],
	[ 'the number of children is negative', 'The number of children is negative.', @list, body => pack('l>', -1) ],
	[ 'the name of a child contains a slash', 'The name of a child is impossible.',
		@list, body => pack('l>', 1) . string('a/lock-0000000001') ],
	[ 'the new node has another path', 'The path of the new node is not the one that was asked for.',
		@create, body => string('/m/other/lock-0000000001') . node_stat(9, 9, $own) ],
	[ 'an error code is positive', "Its error code is not one of ZooKeeper's.", @create, code => 7 ])
{
	my ($what, $text, %answer) = @$case;
	subtest $what => sub {
		my $mark  = $server->log_mark;
		my $fault = $answer{code} ? $proxy->deny(%answer) : $proxy->forge(%answer);
		$s->query_start("SELECT zk_lock('/m/lock')");
		$proxy->fired($fault);
		$server->wait_log(qr{worker restarts because of a malformed answer of ZooKeeper server 127\.0\.0\.1:\d+: \Q$text\E}, $mark);
		is($s->finish, 't', 'the lock that was asked for is got');
		is($server->zk_session->{last_error}, "malformed answer: $text", 'zk_session tells of it');
		is($holder->query("SELECT zk_fencing_token('/m/held')"), $token, 'the other one is kept');
		is($server->session_id, $id, 'the session goes on');
		$s->query('SELECT zk_unlock_all()');
		$server->wait_value("SELECT count(*) FROM zk_locks WHERE path = '/m/lock'", 0);
	};
}

foreach my $event ([ 'the session has expired', -112 ], [ 'the connection is lost', 1 ])
{
	my ($what, $state) = @$event;
	subtest "a server says in a watch event that $what" => sub {
		$server->wait_session;
		my $mark = $server->log_mark;
		$proxy->notify(type => -1, state => $state, path => '');
		is($s->query("SELECT zk_lock('/m/lock')"), 't', 'locks are got');
		is($s->query("SELECT zk_unlock('/m/lock')"), 't', 'and released');
		is($holder->query("SELECT zk_fencing_token('/m/held')"), $token, 'the other one is kept');
		is($server->session_id, $id, 'the session goes on');
		unlike($server->log_since($mark), qr/session ended|restarts/, 'that is all');
	};
}

my $before = $server->value(q{SELECT zk_locks FROM zk_locks WHERE path = '/m/held'});

# The session's password, as the worker keeps it for after a crash
my ($hex) = slurp_file($server->session_file) =~ /\b([0-9a-f]{32})\b/ or die 'no password';
my $password = pack('H*', $hex);

# How a connection begins, which is the first of another worker or another one of the same worker
my @connect = (op => 'connect', 'body');
foreach my $case (
	[ 'worker', 'The session timeout is not positive.',           @connect => handshake(0, $own) ],
	[ 'worker', 'The session timeout is longer than a day.',      @connect => handshake(2_000_000_000, $own) ],
	[ 'drop',   'The password of the session has changed.',       @connect => handshake(40_000, $own) ],
	[ 'drop',   'The session is read-only.',                      @connect => handshake(40_000, $own, $password, 1) ],
	[ 'drop',   "Its error code is not one of ZooKeeper's.",      op => 'multi', code => 7, any => 1 ])
{
	my ($way, $text, %answer) = @$case;
	subtest "a connection of a known session begins with an answer that is wrong: $text" => sub {
		my $mark  = $server->log_mark;
		my $fault = $answer{code} ? $proxy->deny(%answer) : $proxy->forge(%answer);
		$way eq 'drop' ? $proxy->drop : $server->value('SELECT pg_terminate_backend(worker_pid) FROM zk_session');
		$proxy->fired($fault);
		$server->wait_log(qr{worker restarts because of a malformed answer of ZooKeeper server .*: \Q$text\E}, $mark);
		$server->wait_session;
		$mark = $server->log_mark;
		$proxy->drop;
		$server->wait_log(qr/connected to/, $mark);
		$server->wait_session;
		is($server->session_id, $id, 'the session goes on');
		is($server->value(q{SELECT zk_locks FROM zk_locks WHERE path = '/m/held'}), $before, 'and the lock in it');
	};
}

subtest 'a server offers new sessions that cannot be' => sub {
	my $fault = $proxy->forge(op => 'connect', body => handshake(7000, 0), times => 0);
	$proxy->reset_counts;
	my $b = Zklock::Server->new('c', zookeeper => $proxy, connect => 0, conf => ["zklock.session_timeout = '40s'"]);
	wait_until { $proxy->accepted > 4 } 'some attempts';
	my $log = $b->log_since(0);
	is(() = $log =~ /LOG:  malformed answer of ZooKeeper server .*: The session has no id\./g, 1, 'the log tells once');
	unlike($log, qr/restarts/, 'and no worker is started again for it');
	is($b->zk_session->{session_id}, undef, 'there is no session');
	$proxy->clear;
	$b->wait_session;
	is($b->value("SELECT zk_try_lock('/m/new')"), 't', 'until a server offers one that can');
	$b->value("SELECT zk_unlock('/m/new')");
	$b->stop;
};

unlike($server->log_since($start), qr/was terminated by signal|was not properly shut down/, 'nothing has crashed');
is($holder->query("SELECT zk_unlock('/m/held')"), 't', 'in the end the lock is released');
done_clean($zk, $server);
