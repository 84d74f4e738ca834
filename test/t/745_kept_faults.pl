# Copyright (c) 2026, zklock contributors
#
# zklock.keep_idle, when something goes wrong: what is kept is nobody's when the ZooKeeper session,
# the backend, the worker or the whole server ends, when somebody deletes its node, and when the
# server is stopped. A session that takes it again at that moment has it, or is told.

use strict;
use warnings;

use Test::More;
use Zklock::Cast qw(:DEFAULT token clean);
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(freeze thaw wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my @conf  = ("zklock.session_timeout = '4s'", "zklock.tick_time = '500ms'");
my $a     = Zklock::Server->new('a', zookeeper => $proxy, conf => \@conf);
my $b     = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
my ($n, $path, $token) = (0);
my @paths;

# A new path is kept by the session of that name.
sub keep
{
	my ($name) = @_;
	push @paths, $path = '/f/' . ++$n;
	on($a, $name)->query("SET zklock.keep_idle = '10min'");
	$s{$name}->query("SELECT zk_lock('$path')");
	$token = token($name, $path);
	$s{$name}->query("SELECT zk_unlock('$path')");
	is($a->value("SELECT state FROM zk_locks WHERE path = '$path'"), 'kept', "$path is kept");
	return $s{$name};
}

# It is nobody's: another server has it at once.
sub other_has_it
{
	my ($name) = @_;
	is(on($b, 'other')->query("SELECT zk_lock('$path', '30s')"), 't', $name);
	cmp_ok(token('other', $path), '>', $token, 'with a higher token');
	is($s{other}->query("SELECT zk_unlock('$path')"), 't', 'and gives it back');
	return;
}

subtest 'the worker is stopped' => sub {
	my $k = keep('k');
	freeze($a->worker_pid);
	is($k->query("SELECT zk_lock('$path')"), 't', 'the session has the lock again');
	is($k->query("SELECT zk_unlock('$path')"), 't', 'and keeps it');
	queue_on_b();
	is($k->query("SELECT zk_lock('$path')"), 't', 'even if another server waits: the worker cannot know');
	thaw($a->worker_pid);
	$a->wait_value("SELECT count(*) FROM zk_contenders('$path') WHERE kept", 0);
	is($k->query("SELECT zk_unlock('$path')"), 't', 'when it goes on');
	is($s{waiter}->finish, 't', 'the other is served');
	$s{waiter}->query("SELECT zk_unlock('$path')");
};

sub queue_on_b { queue($b, 'waiter', $path); $b->wait_queued($s{waiter}, $path); return; }

subtest 'a new worker' => sub {
	my $k = keep('k');
	my ($node) = $zk->children($path);
	$a->restart_worker;
	$a->wait_session;
	wait_until { !grep { $_ eq $node } $zk->children($path) } 'lets go of what was kept';
	is($k->query("SELECT zk_lock('$path')"), 't', 'the session locks again');
	cmp_ok(token('k', $path), '>', $token, 'with a higher token');
	$k->query("SELECT zk_unlock('$path')");

	keep('k');
	$k->query("SELECT zk_lock('$path')") foreach 1 .. 2;
	$k->query("SELECT zk_unlock('$path')");
	$token = token('k', $path);
	$a->restart_worker;
	$a->wait_session;
	is(token('k', $path), $token, 'and leaves what is held');
	is(on($b, 'other')->query("SELECT zk_try_lock('$path')"), 'f', 'of which another server is told');
	queue($a, 'local', $path);
	is($k->query("SELECT zk_unlock('$path')"), 't', 'until it is released');
	is($s{local}->finish, 't', 'to the next session of this server');
	cmp_ok(token('local', $path), '>', $token, 'with a higher token');
	$s{local}->query("SELECT zk_unlock('$path')");
};

subtest 'the ZooKeeper session ends' => sub {
	my $k = keep('k');
	my $mark = $a->log_mark;
	$a->expire_session($zk);
	$a->wait_log(qr/Locks lost: 0/, $mark);
	$a->wait_session;
	is($k->query("SELECT zk_lock('$path')"), 't', 'the session locks again');
	cmp_ok(token('k', $path), '>', $token, 'with a higher token');
	$token = token('k', $path);
	$k->query("SELECT zk_unlock('$path')");
	other_has_it('and another server can have it');
};

subtest 'it ends while ZooKeeper is away' => sub {
	my $k = keep('k');
	$proxy->cut;
	$a->wait_value('SELECT state FROM zk_session', 'connecting');
	$a->wait_value("SELECT count(*) FROM zk_locks WHERE path = '$path' AND state = 'kept'", 0);
	is($k->try("SELECT zk_try_lock('$path')")->{sqlstate}, '58030', 'then the session does not have it again');
	other_has_it('but another server');
	$proxy->heal;
	$a->wait_session;
};

subtest 'somebody deletes the node' => sub {
	my $k = keep('k');
	my ($node) = $zk->children($path);
	is($b->value("SELECT zk_break_lock('$path', '$node')"), 't', 'of what is kept');
	$a->wait_value("SELECT count(*) FROM zk_locks WHERE path = '$path'", 0);
	other_has_it('another server has it');
	is($k->query("SELECT zk_lock('$path')"), 't', 'the session locks again');
	$k->query("SELECT zk_unlock('$path')");
};

subtest 'the answer to the mark is lost' => sub {
	foreach my $lose (qw(lose_reply lose_request))
	{
		my $fault = $proxy->$lose(op => 'setData');
		my $k = keep('k');
		ok($proxy->fired($fault), $lose);
		wait_until { on($b, 'other')->query("SELECT zk_try_lock('$path')") eq 't' } 'another server can tell all the same';
		is($b->value("SELECT count(*) FROM zk_locks WHERE path = '$path' AND granted"), 1, 'another server has it');
		$s{other}->query("SELECT zk_unlock('$path')");
		keep('k');
		$k->query("SELECT zk_lock('$path')");
		$fault = $proxy->$lose(op => 'setData');
		is($s{other}->query("SELECT zk_try_lock('$path')"), 'f', 'and that it is held');
		ok($proxy->fired($fault), "$lose, too");
		$k->query("SELECT zk_unlock('$path')");
	}
};

subtest 'the mark is refused' => sub {
	my $fault = $proxy->refuse(op => 'setData', code => -102);
	push @paths, $path = '/f/refused';
	is($s{k}->query("SELECT zk_lock('$path')"), 't', 'a lock');
	$token = token('k', $path);
	is($s{k}->query("SELECT zk_unlock('$path')"), 't', 'is released');
	ok($proxy->fired($fault), 'and could not be marked');
	is(scalar $zk->children($path), 0, 'so it is not kept');
	other_has_it('another server has it');
};

subtest 'a node that never answers' => sub {
	push @paths, $path = '/f/forged';
	$zk->shell->create("$path/_c_00000000-0000-8000-8000-000000000001-lock-", ephemeral => 1, sequence => 1, makepath => 1,
		data => '{"zklock":"1.0","kept":"perhaps","pid":1}');
	is(on($b, 'other')->query("SELECT zk_try_lock('$path')"), 'f', 'is waited for, but not for ever');
	$zk->shell->remove($path, 'all');
};

subtest 'a backend ends' => sub {
	my $k = keep('gone');
	$k->terminate;
	other_has_it('another server has what it kept');
};

subtest 'a backend is killed' => sub {
	keep('killed');
	kill 'KILL', $s{killed}->pid;
	delete $s{$_} foreach qw(killed k local);
	other_has_it('another server has what it kept, as all sessions of the first end');
	wait_until { my $s = eval { $a->session }; $s && $s->disconnect || $s } 'the server is back';
	$a->wait_session;
};

subtest 'the server is stopped' => sub {
	my $k = keep('k');
	$a->begin_stop('fast');
	$a->wait_stopped;
	is(scalar $zk->children($path), 0, 'and has let go before it is gone');
	other_has_it('another server has it');
	delete $s{k};
	$a->launch;
};

subtest 'smart' => sub {
	my $k = keep('k');
	my $mark = $a->log_mark;
	$a->begin_stop('smart');
	$a->wait_log(qr/received smart shutdown request/, $mark);
	is($k->query("SELECT zk_lock('$path')"), 't', 'its sessions go on');
	is($k->query("SELECT zk_unlock('$path')"), 't', 'to the end');
	$k->disconnect;
	$a->wait_stopped;
	is(scalar $zk->children($path), 0, 'and nothing keeps it from stopping');
	delete $s{k};
	$a->launch;
};

clean($zk, [ $a, $b ], @paths);
done_testing;
