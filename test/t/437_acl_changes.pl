# Copyright (c) 2026, zklock contributors
#
# The rights on a path are taken away while a lock is held and waited for, and given back.

use Zklock::Test;
use Zklock::Cast;

my $zk    = Zklock::ZooKeeper->standalone;
my $shell = $zk->shell;
$shell->add_auth('digest', 'admin:secret');
my @admin = ([ 'digest', 'admin:secret', 'cdrwa' ]);
my $a     = Zklock::Server->new('a', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'"]);
my $b     = Zklock::Server->new('b', zookeeper => $zk, conf => ["zklock.session_timeout = '20s'"]);

sub rights
{
	my ($path, $letters) = @_;
	$shell->set_acl($path, [ @admin, $letters ? [ 'world', 'anyone', $letters ] : () ]);
	return;
}

sub refused
{
	my ($result, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($result->{sqlstate}, '42501', "$what is refused") or diag explain $result;
	like($result->{detail} || '', qr/^ZooKeeper refused: ZNOAUTH\./, "with ZooKeeper's error");
	return;
}

subtest 'a path that cannot be read any more is refused to newcomers, and left to those who are there' => sub {
	$shell->create('/r/path', makepath => 1);
	hold($a, 'holder', '/r/path');
	queue($a, 'local', '/r/path');
	my $before = holdings($a);
	rights('/r/path', 'cdwa');
	refused(on($b, 'remote')->try("SELECT zk_lock('/r/path')"), 'no right to read: another server');
	refused($s{remote}->try("SELECT zk_try_lock('/r/path')"), 'who does not wait');
	is_deeply(holdings($a), $before, 'the holder holds');
	ok($s{local}->busy, 'who is in the queue stays there');
	is($s{holder}->query("SELECT zk_unlock('/r/path')"), 't', 'the lock can be released');
	is($s{local}->finish, 't', 'and is the next one\'s');
	is($s{local}->query("SELECT zk_unlock('/r/path')"), 't', 'who can release it as well');
	wait_until { !$zk->children('/r/path') } 'the node to go';
	rights('/r/path', 'cdrwa');
	is($s{remote}->query("SELECT zk_lock('/r/path')"), 't', 'with the right back it can be locked');
};

subtest 'a session behind a foreign holder has the lock, or is told why not' => sub {
	queue($a, 'local', '/r/path');
	wait_until { $zk->children('/r/path') == 2 } 'the place';
	rights('/r/path', 'cdwa');
	is($s{remote}->query("SELECT zk_unlock('/r/path')"), 't', 'a foreign holder releases');
	my $result = $s{local}->result;
	ok($result->{ok} || $result->{sqlstate} eq '42501', 'who waited has the lock, or is told why not') or diag explain $result;
	$s{local}->query('SELECT zk_unlock_all()');
	rights('/r/path', 'cdrwa');
	wait_until { !$zk->children('/r/path') } 'nothing to be left';
};

subtest 'a path in which no nodes can be created is refused to newcomers' => sub {
	hold($a, 'holder', '/r/path');
	queue($b, 'remote', '/r/path');
	# A server that has not heard of it yet lets a newcomer have the holder's node next.
	$a->settle;
	rights('/r/path', 'drwa');
	refused(on($a, 'newcomer')->try("SELECT zk_lock('/r/path')"), 'no right to create: a newcomer behind others');
	is($s{holder}->query("SELECT zk_unlock('/r/path')"), 't', 'the holder releases');
	is($s{remote}->finish, 't', 'who waited gets the lock');
	is($s{remote}->query("SELECT zk_unlock('/r/path')"), 't', 'and releases it');
	refused($s{holder}->try("SELECT zk_lock('/r/path')"), 'a new lock');
	rights('/r/path', 'cdrwa');
};

subtest 'a parent that forbids does not concern paths below' => sub {
	# A parent that forbids makes no difference to who has a path below.
	hold($a, 'holder', '/r/path');
	rights('/r', '');
	queue($b, 'remote', '/r/path');
	refused(on($a, 'newcomer')->try("SELECT zk_lock('/r/other')"), 'a new path below a parent that forbids');
	$s{holder}->query("SELECT zk_unlock('/r/path')");
	is($s{remote}->finish, 't', 'does not concern one that is there');
	$s{remote}->query("SELECT zk_unlock('/r/path')");
	rights('/r', 'cdrwa');
};

subtest 'a lock whose node cannot be deleted is not free, and nobody believes it' => sub {
	hold($a, 'holder', '/r/path');
	queue($b, 'remote', '/r/path');
	my $mark = $a->log_mark;
	rights('/r/path', 'crw');
	$s{holder}->query_start("SELECT zk_unlock('/r/path')");
	$a->wait_log(qr{LOG:  could not delete ZooKeeper node "/r/path/.*": ZNOAUTH}, $mark);
	ok($s{holder}->busy && $s{remote}->busy, 'no right to delete: the lock is not free, and nobody believes it');
	rights('/r/path', 'cdrwa');
	is($s{holder}->finish, 't', 'with the right back it is released');
	is($s{remote}->finish, 't', 'and the next one\'s');
};

#
subtest 'the lease goes on although the root cannot be read' => sub {
	# Heartbeats look at it. That they are refused proves as much.

	hold($a, 'holder', '/r/other');
	rights('/', 'cdwa');
	my $since = $a->value('SELECT clock_timestamp()');
	$a->wait_value(
		"SELECT lease_remaining > '0' AND clock_timestamp() + lease_remaining > '$since'::timestamptz + interval '20s'"
		  . ' FROM zk_session', 't');
	pass('no right to read the root: the lease goes on');
	is($s{holder}->query("SELECT zk_unlock('/r/other')"), 't', 'so do locks');
	rights('/', 'cdrwa');
};

all_disconnect();
Zklock::Server->assert_clean($zk, [ $a, $b ], '/r/path', '/r/other');
done_testing;
