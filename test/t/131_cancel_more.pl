# Copyright (c) 2026, zklock contributors
#
# What is left when a wait has ended, or the wait of a release: places in the queue, savepoints,
# other locks, timeouts.

use strict;
use warnings;

use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my $a     = Zklock::Server->new('a', zookeeper => $proxy);
my $b     = Zklock::Server->new('b', zookeeper => $zk);
my $shell = $zk->shell;

my $holder = $a->session(name => 'holder');
my $next   = $b->session(name => 'next');
my $s      = $a->session;
my $path;

foreach my $hold ('hold_request', 'hold_reply')
{
	subtest "the only session that waits gives up, and can ask again at once: $hold of create" => sub {
		$path = "/t/cancel/alone $hold" =~ s/ /_/r;
		$shell->create($path, makepath => 1);
		my $victim = $a->session;
		# Whom it waited for before is not told of the next wait, which uses the same memory.
		my $node = $shell->create('/t/cancel/before/_c_00000001-0000-4000-8000-000000000000-lock-',
			ephemeral => 1, sequence => 1, makepath => 1);
		is($victim->query("SELECT zk_lock('/t/cancel/before', '100ms')"), 'f', "$hold of create: a wait before");
		$shell->delete($node);
		wait_until { $a->lock_count == 0 } 'its end';
		my $fault = $proxy->$hold(op => 'create2', path => "^$path/");
		$victim->query_start("SELECT zk_lock('$path')");
		$proxy->fired($fault);
		$victim->wait_row("state = 'waiting'", $path);
		is($a->lock_count('blocked_by_node IS NULL AND node !~ \'\\d{10}$\''), 1,
			"$hold of create: it is not known who is before it");
		$victim->cancel;
		is($victim->result->{sqlstate}, '57014', "$hold of create: the only one gives up");

		# The same session, and the same path, before anything is answered.
		$victim->query_start("SELECT zk_lock('$path', '30s')");
		$victim->wait_row("state = 'waiting'", $path);
		$proxy->heal;
		is($victim->finish, 't', "$hold of create: it can ask again at once");
		wait_until { $zk->children($path) == 1 } 'one node';
		is($victim->query("SELECT zk_unlock('$path')"), 't', "$hold of create: and has one node only");
		is(scalar($zk->children($path)), 0, "$hold of create: no node is left");
		$victim->disconnect;
	};
}

$path = '/t/cancel/savepoint';

subtest 'a wait that ends in a savepoint costs the transaction nothing else' => sub {
	$holder->query("SELECT zk_lock('$path')");
	$s->query($_) foreach 'BEGIN', 'CREATE TABLE kept ()', 'SAVEPOINT s', "SET LOCAL lock_timeout = '50ms'";
	is($s->try("SELECT zk_xact_lock('$path')")->{sqlstate}, '55P03', 'a wait in a savepoint ends');
	is($s->try('SELECT 1')->{sqlstate}, '25P02', 'the transaction has failed');
	$s->query('ROLLBACK TO s');
	$holder->query("SELECT zk_unlock('$path')");
	is($s->query("SELECT zk_xact_lock('$path', '30s')"), 't', 'after the rollback to it the lock can be had');
	is($holder->query("SELECT zk_try_lock('$path')"), 'f', 'and is held');
	$s->query('COMMIT');
	is($a->value("SELECT to_regclass('kept') IS NOT NULL"), 't', 'the rest of the transaction is kept');
	$holder->query("SELECT zk_lock('$path')");
	is( $s->query("SET lock_timeout = '50ms'; DO \$\$ BEGIN PERFORM zk_xact_lock('$path'); EXCEPTION"
			  . " WHEN lock_not_available THEN PERFORM set_config('t.caught', 'yes', false); END \$\$;"
			  . " RESET lock_timeout; SELECT current_setting('t.caught')"),
		'yes', 'an exception block catches the end of a wait');
	is($a->lock_count('pid = ' . $s->pid . " AND state <> 'releasing'"), 0, 'which leaves nothing');
	$holder->query("SELECT zk_unlock('$path')");
};

subtest 'a lock that is held is not touched by a wait for another one that ends' => sub {
	$holder->query("SELECT zk_lock('$path')");
	$s->query("SELECT zk_lock('/t/cancel/held'), zk_lock('/t/cancel/held')");
	is($s->try("SET lock_timeout = '50ms'; SELECT zk_lock('$path')")->{sqlstate}, '55P03', 'a wait ends');
	is($s->query("RESET lock_timeout; SELECT zk_unlock('/t/cancel/held')"), 't', 'another lock is still held');
	is($s->query("SELECT zk_unlock('/t/cancel/held')"), 't', 'as often as before');
	$holder->query("SELECT zk_unlock('$path')");
};

subtest 'lock_timeout is for each wait, and does not go on after it' => sub {
	$shell->create('/t/cancel/ephemeral', ephemeral => 1);
	# So of what never ends, another timeout is the end.
	$s->query("SET lock_timeout = '1500ms'; SET statement_timeout = '3s'");
	is($s->try("SELECT zk_lock('$path'); DO \$\$ BEGIN LOOP END LOOP; END \$\$")->{sqlstate},
		'57014', 'lock_timeout is over when the lock is granted');
	is( $s->try("DO \$\$ BEGIN PERFORM zk_lock('/t/cancel/ephemeral/lock'); EXCEPTION"
			  . ' WHEN wrong_object_type THEN LOOP END LOOP; END $$')->{sqlstate},
		'57014', 'and when it is refused');
	is($s->query("RESET lock_timeout; RESET statement_timeout; SELECT zk_unlock('$path')"), 't', 'the lock is held');
	$shell->delete('/t/cancel/ephemeral');
};

foreach my $end (qw(cancel terminate))
{
	subtest "a release that is interrupted releases the lock all the same: $end" => sub {
		$path = "/t/cancel/unlock_$end";
		my $victim = $a->session;
		$victim->query("SELECT zk_lock('$path')");
		$next->query_start("SELECT zk_lock('$path', '30s')");
		$next->wait_row('blocked_by_node IS NOT NULL', $path);
		my $fault = $proxy->hold_request(op => 'delete', path => "^$path/");
		$victim->query_start("SELECT zk_unlock('$path')");
		$proxy->fired($fault);
		$victim->$end;
		is($victim->result->{sqlstate}, $end eq 'cancel' ? '57014' : '57P01', "$end of an unlock");
		if ($end eq 'cancel')
		{
			my $r = $victim->try("SELECT zk_unlock('$path')");
			is($r->{text}, 'f', 'the lock is not held any more');
		}
		ok($next->busy, 'the next waits, since the node is there');
		$proxy->heal;
		is($next->finish, 't', 'and gets it when that is gone');
		$next->query("SELECT zk_unlock('$path')");
		$victim->disconnect;
	};
}

subtest 'a session that releases all its locks waits until the nodes are gone' => sub {
	foreach my $all ('SELECT zk_unlock_all()', 'DISCARD ALL')
	{
		$path = '/t/cancel/unlock_all';
		my $s = $a->session;
		$s->query("SELECT zk_lock('$path')");
		my $fault = $proxy->hold_request(op => 'delete', path => "^$path/");
		$s->query_start($all);
		$proxy->fired($fault);
		$a->wait_event($s, 'unlock');
		$proxy->heal;
		$s->finish;
		is(scalar($zk->children($path)), 0, "$all returns when the node is gone");
		$s->disconnect;
	}
};

$_->disconnect foreach $s, $holder, $next;
Zklock::Server->assert_clean($zk, [ $a, $b ], '/t/cancel/savepoint', '/t/cancel/held');
done_testing;
