# Copyright (c) 2026, zklock contributors
#
# zk_stats_paths: the paths at which sessions have waited longest, in bounded memory.
# zk_stats_session: what the server has asked of ZooKeeper.

use strict;
use warnings;

use List::Util qw(sum0);
use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
my $a     = Zklock::Server->new('a', zookeeper => $proxy);
my ($admin, $s1, $s2) = map { $a->session(name => $_) } qw(admin s1 s2);

sub paths { my ($columns) = @_; return $admin->try("SELECT $columns FROM zk_stats_paths")->{rows}; }

subtest 'each path with its waits' => sub {
	$s1->query("SELECT zk_lock('/p/a'), zk_lock('/p/a')");
	$s1->query("SELECT zk_lock('/p/b')");
	$s1->query("SELECT zk_semaphore_acquire('/p/slots', 1)");
	$s1->query("SELECT zk_claim('/p/claim', now()), zk_queue_take('/p/queue', '0')");
	is($s2->query("SELECT zk_try_lock('/p/b')"), 'f', 'a try counts as well');
	is($s2->query("SELECT zk_semaphore_acquire('/p/slots', 1, '20 ms')"), 'f', 'a permit is waited for');
	is_deeply($admin->try('SELECT path, kind, waits, unseen FROM zk_stats_paths ORDER BY path')->{rows},
		[ [ '/p/a', 'lock', 1, '00:00:00' ], [ '/p/b', 'lock', 2, '00:00:00' ],
			[ '/p/claim', 'claim', 1, '00:00:00' ], [ '/p/queue', 'queue', 1, '00:00:00' ], [ '/p/slots', 'semaphore', 2, '00:00:00' ] ],
		'under the name that the user knows');
	is($admin->query(q{SELECT (SELECT sum(wait_time) FROM zk_stats) = (SELECT sum(wait_time) FROM zk_stats_paths)}), 't',
		'together they are all waits');
	is($admin->query(q{SELECT wait_time >= '19 ms' AND longest_wait < wait_time AND longest_wait >= '19 ms' FROM zk_stats_paths WHERE path = '/p/slots'}),
		't', 'the longest is one of them');
};

subtest 'of many paths the longest waits stay' => sub {
	$s2->query_start("SELECT zk_lock('/p/a', '300 ms')");
	is($s2->finish, 'f', 'a long wait');
	$s1->query(q{SELECT zk_unlock_all()});
	$s1->query(q{DO $$ BEGIN FOR i IN 1 .. 300 LOOP
		PERFORM zk_lock('/p/many/' || i), zk_unlock('/p/many/' || i); END LOOP; END $$});
	is(scalar @{ paths('path') }, 100, 'a hundred are shown');
	is(paths('path')->[0][0], '/p/a', 'the longest first');
	is($admin->query('SELECT bool_and(total <= before OR before IS NULL) FROM (SELECT wait_time + unseen AS total, '
		  . 'lag(wait_time + unseen) OVER () AS before FROM zk_stats_paths) p'), 't', 'in order');
	is($admin->query(q{SELECT max(unseen) > '0' AND max(unseen) <= (SELECT sum(wait_time) / 256 FROM zk_stats) FROM zk_stats_paths}), 't',
		'what may have been missed of a path is bounded');
	$admin->query('SELECT zk_stats_reset()');
	is_deeply(paths('path'), [], 'a reset forgets them');
};

# What ZooKeeper sees of the worker's requests, but for pings and what a new connection asks.
sub seen { my %counts = %{ $proxy->counts }; delete @counts{qw(ping connect notification)}; return sum0(values %counts); }

subtest 'requests to ZooKeeper' => sub {
	my $requests = 'SELECT requests FROM zk_stats_session';
	$s1->query("SELECT zk_lock('/p/r')");
	$a->settle;

	# The two are read one after the other, while heartbeats go on.
	my ($counted, $before);
	wait_until { $before = seen(); $counted = $admin->query($requests); seen() == $before } 'a quiet moment';
	my $difference = $counted - $before;
	$s1->query(q{SELECT zk_unlock('/p/r')});
	$s1->query(q{SELECT zk_lock('/p/requests/' || i), zk_unlock('/p/requests/' || i) FROM generate_series(1, 20) i});
	$a->settle;
	wait_until { my $now = seen(); $admin->query($requests) - $now == $difference && seen() > $before + 40 } 'each is counted';
	is($admin->query("SELECT errors FROM zk_stats_session"), 0, 'none is an error');
	is($admin->query("SELECT request_time > '0' FROM zk_stats_session"), 't', 'they take their time');

	my $refused = $proxy->refuse(op => 'create2', path => '^/p/refused/', code => -102);
	is($s1->try("SELECT zk_lock('/p/refused')")->{sqlstate}, '42501', 'a refusal');
	is($admin->query("SELECT errors FROM zk_stats_session"), 1, 'is one');
};

subtest 'connections and sessions' => sub {
	my $counts = 'SELECT reconnects, expirations FROM zk_stats_session';
	is($admin->query($counts), '0|0', 'so far all was well');
	$proxy->drop;
	wait_until { $admin->query($counts) eq '1|0' } 'a lost connection';
	$a->wait_session;
	$a->restart_worker;
	$a->wait_session;
	is($admin->query($counts), '2|0', 'the next worker continues the session on another one');
	$a->expire_session($zk);
	wait_until { $admin->query($counts) eq '2|1' } 'a session ends';
	is($admin->query('SELECT reconnects, expirations FROM zk_session'), '2|1', 'as zk_session has it');
	$admin->query('SELECT zk_stats_reset()');
	is($admin->query($counts), '0|0', 'until they are reset');
};

$_->disconnect foreach $s1, $s2, $admin;
$a->assert_clean($zk, '/p/a', '/p/b', '/p/r');
done_testing;
