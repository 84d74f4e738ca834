# Copyright (c) 2026, zklock contributors
#
# zk_session: what the server has asked of ZooKeeper, and how often its session was continued or
# ended.

use Zklock::Test;
use List::Util qw(sum0);

my ($zk, $proxy, $a) = cast('a', proxied => 'a');
my ($admin, $s1) = map { $a->session(name => $_) } qw(admin s1);

# What ZooKeeper sees of the worker's requests, but for pings and what a new connection asks.
sub seen { my %counts = %{ $proxy->counts }; delete @counts{qw(ping connect notification)}; return sum0(values %counts); }

subtest 'requests to ZooKeeper' => sub {
	my $requests = 'SELECT requests FROM zk_session';
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
	is($admin->query("SELECT request_errors FROM zk_session"), 0, 'none is an error');
	is($admin->query("SELECT request_time > '0' FROM zk_session"), 't', 'they take their time');

	my $refused = $proxy->refuse(op => 'create2', path => '^/p/refused/', code => -102);
	is($s1->try("SELECT zk_lock('/p/refused')")->{sqlstate}, '42501', 'a refusal');
	is($admin->query("SELECT request_errors FROM zk_session"), 1, 'is one');
};

subtest 'connections and sessions' => sub {
	my $counts = 'SELECT reconnects, expirations FROM zk_session';
	is($admin->query($counts), '0|0', 'so far all was well');
	$proxy->drop;
	wait_until { $admin->query($counts) eq '1|0' } 'a lost connection';
	$a->wait_session;
	$a->restart_worker;
	$a->wait_session;
	is($admin->query($counts), '2|0', 'the next worker continues the session on another one');
	$a->expire_session($zk);
	wait_until { $admin->query($counts) eq '2|1' } 'a session ends';
	$admin->query('SELECT zk_stats_reset()');
	is($admin->query($counts), '2|1', 'which a reset of the statistics leaves');
	is($admin->query('SELECT requests > 40 FROM zk_session'), 't', 'as it does the requests');
};

$_->disconnect foreach $s1, $admin;
$a->assert_clean($zk, '/p/r');
done_testing;
