# Copyright (c) 2026, zklock contributors
#
# zklock.servers leads to another ensemble, or another chroot: locks held here cannot come
# along. So as long as one is held the session stays where it is; then it moves.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Cast;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $here  = Zklock::ZooKeeper->ensemble(3);
my $there = Zklock::ZooKeeper->standalone;
my $a     = Zklock::Server->new('a', zookeeper => $here, conf => ["zklock.session_timeout = '10s'"]);
my $b     = Zklock::Server->new('b', zookeeper => $here);

sub put_off
{
	my ($why, %settings) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($mark, $id, $worker, $before) = ($a->log_mark, $a->session_id, $a->worker_pid, holdings($a));
	$a->set_conf(%settings);
	$a->assert_log($mark, qr/WARNING:  changed settings of zklock are not taken up while locks are held: .*$why/,
		'the log tells');
	like($a->zk_session->{last_error}, qr/not taken up while locks are held: .*$why/, 'and zk_session');
	is($a->session_id, $id, 'the session goes on');
	is($a->worker_pid, $worker, 'in the same worker');
	is_deeply(holdings($a), $before, 'and holders hold');
	return $id;
}

subtest 'another ensemble is taken up when no lock is held any more' => sub {
	hold($a, 'holder', '/m/held');
	hold($b, 'foreigner', '/m/foreign');
	queue($a, 'waiter', '/m/foreign');
	my $id = put_off(qr/another ensemble/, 'zklock.servers' => $there->connect_string);
	is(on($a, 'other')->query("SELECT zk_try_lock('/m/other')"), 't', 'locks are granted as before');
	is($s{holder}->query("SELECT zk_unlock('/m/held')"), 't', 'one is released');
	is($a->session_id, $id, 'but another one is still held');
	my $mark = $a->log_mark;
	is($s{other}->query("SELECT zk_unlock('/m/other')"), 't', 'it is released as well');
	is($s{waiter}->finish, 't', 'then the session moves, and who waits gets the lock there, where nobody holds it');
	$a->wait_session;
	isnt($a->session_id, $id, 'in another session');
	$a->assert_log($mark, qr/Locks lost: 0\. Waiting requests that queue again: 1\./, 'nothing has been lost');
	is(scalar($there->children('/m/foreign')), 1, 'its node is there');
	wait_until { $here->children('/m/foreign') == 1 } 'the session left to be closed';
	pass('none is left here');
	is($s{waiter}->query("SELECT zk_unlock('/m/foreign')"), 't', 'unlocked');
	all_disconnect();
};

subtest 'with no lock held at all it is taken up at once' => sub {
	my $id = $a->session_id;
	$a->set_conf('zklock.servers' => $here->connect_string);
	wait_until { my $s = $a->zk_session; $s->{state} eq 'connected' && $s->{session_id} ne $id } 'another session';
	$a->wait_session;
	is(on($a, 'holder')->query("SELECT zk_try_lock('/m/held')"), 't', 'locks are granted there');
};

subtest 'another chroot is taken up when no lock is held any more, if it exists' => sub {
	my $mark = $a->log_mark;
	my $id   = $a->session_id;
	$a->set_conf('zklock.servers' => $here->connect_string('/missing'));
	$a->assert_log($mark, qr/WARNING:  changed settings of zklock are not taken up: the chroot .* does not exist/,
		'one that is missing is not taken up');
	is($a->session_id, $id, 'the session goes on');
	$here->shell->create('/root');
	put_off(qr/another chroot/, 'zklock.servers' => $here->connect_string('/root'));
	is($s{holder}->query("SELECT zk_unlock('/m/held')"), 't', 'the lock is released');
	wait_until { my $s = $a->zk_session; $s->{state} eq 'connected' && $s->{session_id} ne $id } 'another session';
	$a->wait_session;
	hold($a, 'holder', '/m/held');
	is(scalar($here->children('/root/m/held')), 1, 'and held again, below the chroot');
};

subtest 'a change of mind counts' => sub {
	$there->shell->create('/root');
	my $id = put_off(qr/another ensemble/, 'zklock.servers' => $there->connect_string('/root'));
	$a->set_conf('zklock.servers' => $here->connect_string('/root'));
	wait_until { $a->value('SHOW zklock.servers') eq $here->connect_string('/root') } 'the old value';
	is($s{holder}->query("SELECT zk_unlock('/m/held')"), 't', 'the lock is released');
	hold($a, 'holder', '/m/held');
	is($a->session_id, $id, 'the session has not moved');
};

subtest 'credentials with which our nodes cannot be read are taken up when no lock is held' => sub {
	my $auth = sub {
		my ($name) = @_;
		my $file = $a->data_dir . "/$name";
		append_to_file($file, "digest:$name:secret\n");
		chmod 0600, $file;
		return $file;
	};
	my $worker = $a->worker_pid;
	$a->set_conf('zklock.auth_file' => $auth->('first'), 'zklock.acl' => 'creator');
	wait_until { ($a->worker_pid || $worker) != $worker } 'the first credentials to be taken up';
	$a->wait_session;
	hold($a, 'second', '/m/creator');
	$s{holder}->query("SELECT zk_unlock('/m/held')");
	my $id = put_off(qr/credentials do not allow/, 'zklock.auth_file' => $auth->('second'));
	is($s{second}->query("SELECT zk_unlock('/m/creator')"), 't', 'the lock is released');
	wait_until { my $s = $a->zk_session; $s->{state} eq 'connected' && $s->{session_id} ne $id } 'another session';
	pass('then the session moves');
	$a->set_conf('zklock.acl' => 'open');
};

subtest 'while locks come and go all the time, none is lost' => sub {
	$a->value('CREATE PROCEDURE churn(path text) LANGUAGE plpgsql AS $$ BEGIN
		WHILE NOT EXISTS (SELECT FROM stop) LOOP PERFORM zk_lock(path); PERFORM zk_unlock(path); COMMIT; END LOOP; END $$');
	$a->value('CREATE TABLE stop ()');
	on($a, "churn$_")->query_start("CALL churn('/m/churn$_')") foreach 1 .. 8;
	# In the same ensemble the session goes on, unless there is nothing in it at that moment.
	foreach my $i (1 .. 3)
	{
		my $server = $here->server($i)->connect_string;
		$a->set_conf('zklock.servers' => "$server/root");
		wait_until { my $s = $a->zk_session; $s->{state} eq 'connected' && $s->{server} eq $server } "server $i to be taken up";
		pass("server $i of the same ensemble is taken up");
	}
	$a->value('INSERT INTO stop DEFAULT VALUES');
	foreach (1 .. 8)
	{
		my $result = $s{"churn$_"}->result;
		ok($result->{ok}, "no lock of session $_ was lost") or diag explain $result;
	}
};

all_disconnect();
Zklock::Server->assert_clean($here, [ $a, $b ], '/m/held', '/m/foreign', '/root/m/held', map { "/root/m/churn$_" } 1 .. 8);
done_testing;
