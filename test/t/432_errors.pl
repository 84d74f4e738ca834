# Copyright (c) 2026, zklock contributors
#
# ZooKeeper answers with an error, whichever it may be: one that forbids, one that says
# that something broke, one that is newer than zklock. Here: to the requests of
# a session that wants a lock.
#
# The worker lives on, and asks again in moderation where it must. What was refused leaves
# nothing behind, and a session that can be told is told ZooKeeper's error.

use strict;
use warnings;

use Test::More;
use Zklock::Cast;
use Zklock::Proxy;
use Zklock::Refusals;
use Zklock::Server;
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $shell = $zk->shell;
my $proxy = Zklock::Proxy->start($zk);
my @conf  = (conf => ["zklock.session_timeout = '10s'"]);
my $a     = Zklock::Server->new('a', zookeeper => $proxy, @conf);
my $b     = Zklock::Server->new('b', zookeeper => $zk, @conf);
my $id     = $a->session_id;
my $worker = $a->worker_pid;

foreach my $op (qw(create2 createContainer getChildren))
{
	foreach my $code (error_codes())
	{
		subtest "a refused request for a lock is told: $op, $error_name{$code}" => sub {
			my $path = new_path($op);
			$shell->create($path, makepath => 1) unless $op eq 'createContainer';
			$proxy->reset_counts;
			$proxy->refuse(op => $op, code => $code, times => 0, path => "^$path");
			says(on($a, 'asker')->try("SELECT $_('$path')"), $code, "$op, $_")
			  foreach 'zk_lock', 'zk_try_lock';
			moderate($proxy, $op);
			$proxy->clear;
			is($s{asker}->query("SELECT zk_lock('$path')"), 't', 'afterwards it is granted');
			$s{asker}->query("SELECT zk_unlock('$path')");
			$a->assert_clean($zk, $path);
		};
	}
}

subtest 'a refusal of one contender costs the holder and others who wait nothing' => sub {
	my $path = new_path('shared');
	hold($a, 'holder', $path);
	queue($b, 'remote', $path);
	# Before it has heard of the other server, a newcomer need not look.
	$zk->wait_watched("$path/" . $a->wait_holder($s{holder}, $path)->{node}, $a->session_id);
	my $before = holdings($a);
	my $fault = $proxy->refuse(op => 'getChildren', code => -127, times => 0, path => "^$path");
	says(on($a, 'asker')->try("SELECT zk_lock('$path')"), -127, 'another contender');
	ok($proxy->has_fired($fault), 'that was refused');
	$proxy->clear;
	is_deeply(holdings($a), $before, 'the holder does not suffer');
	$s{holder}->query("SELECT zk_unlock('$path')");
	is($s{remote}->finish, 't', 'nor does who waits elsewhere');
	$s{remote}->query("SELECT zk_unlock('$path')");
	Zklock::Server->assert_clean($zk, [ $a, $b ], $path);
};

foreach my $code (-1, -3, -5)
{
	subtest "a node that was created by a server that broke down goes: $error_name{$code}" => sub {
		my $path = new_path('broken');
		$shell->create($path);
		$proxy->deny(op => 'create2', code => $code, path => "^$path");
		says(on($a, 'asker')->try("SELECT zk_lock('$path')"), $code, 'created nevertheless');
		$a->assert_clean($zk, $path);
	};
}

subtest 'a path that cannot be created is tried again for the next session that asks' => sub {
		my $path = new_path('parents');
		$proxy->blackhole('replies');
		on($a, $_) foreach qw(asker reader);
		$s{asker}->query_start("SELECT zk_lock('$path/lock')");
		$a->wait_waiting($s{asker}, "$path/lock");
		$s{reader}->query_start("SELECT zk_lock_shared('$path/lock')");
		$a->wait_waiting($s{reader}, "$path/lock");
		$proxy->refuse(op => 'createContainer', code => -127, path => "^$path\$");
		$proxy->heal;
		says($s{asker}->result, -127, 'a path that cannot be created');
		is($s{reader}->finish, 't', 'but can be a moment later');
		$s{reader}->query("SELECT zk_unlock_shared('$path/lock')");
		$a->assert_clean($zk, "$path/lock");
};

subtest 'the loss of the path above is not taken for a missing chroot' => sub {
		my $path = new_path('above');
		my $fault = $proxy->refuse(op => 'createContainer', code => -101, path => "^$path/lock\$");
		is(on($a, 'asker')->query("SELECT zk_lock('$path/lock')"), 't', 'a path is created again when the one above went');
		ok($proxy->has_fired($fault), 'as it did');
		$s{asker}->query("SELECT zk_unlock('$path/lock')");
		$a->assert_clean($zk, "$path/lock");
};

subtest 'the creation of a path that is not there afterwards comes to an end' => sub {
		my $path = new_path('nonode');
		$shell->create($path);
		$proxy->reset_counts;
		$proxy->refuse(op => 'create2', code => -101, times => 0, path => "^$path/");
		my $result = on($a, 'asker')->try("SELECT zk_lock('$path')");
		is($result->{sqlstate}, '58000', 'a path that is missing again and again is an error') or diag explain $result;
		like($result->{detail} || '', qr/ZNONODE/, 'which is named');
		moderate($proxy, 'create2');
		$proxy->clear;
		is($s{asker}->query("SELECT zk_lock('$path')"), 't', 'afterwards it is granted');
		$s{asker}->query("SELECT zk_unlock('$path')");
		$a->assert_clean($zk, $path);
};

foreach my $op (qw(getChildren getData))
{
	subtest "a session is not told that there is no node as long as that cannot be found out: $op" => sub {
		my $path = new_path('unsettled');
		$shell->create($path);
		my $lost = $proxy->lose_reply(op => 'create2', path => "^$path/");
		# The first listing is sent, and lost, with the create.
		my $fault = $proxy->refuse(op => $op, code => -127, times => $op eq 'getChildren' ? 2 : 1, path => "^$path");
		says(on($a, 'asker')->try("SELECT zk_lock('$path')"), -127, "a create without an answer, then $op");
		ok($proxy->has_fired($lost) && $proxy->has_fired($fault), 'which was refused');
		$proxy->clear;
		$a->assert_clean($zk, $path);
	};
}

foreach my $code (-2, -4, -7, -9, -112, -116, -118)
{
	subtest "the fate of a request whose error does not tell it is found out: $code" => sub {
		my $path = new_path('unknown');
		$proxy->deny(op => 'create2|delete', code => $code, times => 2, path => "^$path/");
		is(on($a, 'asker')->query("SELECT zk_lock('$path')"), 't', "create answered by $code: the lock is granted");
		is(scalar($zk->children($path)), 1, 'under one node');
		is($s{asker}->query("SELECT zk_unlock('$path')"), 't', 'as delete is: it is released');
		$a->assert_clean($zk, $path);
	};
}

is($a->worker_pid, $worker, 'the worker has lived through it');
is($a->session_id, $id, 'in one session');
all_disconnect();

Zklock::Server->assert_clean($zk, [ $a, $b ]);
done_testing;
