# Copyright (c) 2026, zklock contributors
#
# What the worker asks again and again, or for each of the nodes that others have made, does not pile up in its
# memory while ZooKeeper is slow to answer: one such request is under way at a time. Nor do long answers get ahead of those to
# heartbeats. Its requests are counted in the proxy, while no answers come.

use Zklock::Test;
use Zklock::Cast;

my ($zk, $proxy, $a) = cast('a', proxied => 'a', timeout => '60s', conf => ["log_statement = 'none'"]);
my $many = 200;
my $mallory;

$a->value('CREATE ROLE mallory LOGIN; CREATE TABLE t (i int); GRANT INSERT ON t TO mallory');
$a->value('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO mallory');
$a->value("ALTER ROLE mallory SET zklock.commit_guard = 'quorum'");
$mallory = $a->session(user => 'mallory', name => 'mallory');

# How many requests of a kind, with such a path, have been sent since the counts were reset
sub sent($op, $path) { return scalar grep { $_->[0] eq $op && ($_->[1] // '') =~ $path } @{ $proxy->requests }; }

subtest 'the nodes of others are looked at one after the other while a permit is waited for' => sub {
	$mallory->query("SELECT count(zk_queue_offer('/m/leases', 'x')) FROM generate_series(1, $many)");
	$proxy->reset_counts;
	my @waiters = ($mallory, $a->session(user => 'mallory'));
	$_->query_start("SELECT zk_semaphore_acquire('/m', 1)") foreach @waiters;
	wait_until { sent('getChildren', qr{^/m/leases$}) } 'the nodes to be asked for';
	$a->settle;
	$proxy->blackhole('replies');
	wait_until { sent('exists', qr{^/m/leases/}) } 'the first to be looked at';
	$proxy->wait_all_sent;
	is(sent('exists', qr{^/m/leases/}), 1, 'no other is before there is an answer');
	$proxy->heal;
	# A round may be repeated, in part, after a lost connection.
	wait_until
	{
		my %seen = map { $_->[0] eq 'exists' && $_->[1] =~ m{^/m/leases/} ? ($_->[1] => 1) : () } @{ $proxy->requests };
		keys %seen == $many
	}
	'each of them to be looked at';
	pass('in the end each of them is');
	is($_->cancelled, '57014', 'who waits gives up') foreach @waiters;
	$waiters[1]->disconnect;
};

subtest 'who asks for proof of a lock again and again has one check under way' => sub {
	is($mallory->query("SELECT zk_lock('/m/lock')"), 't', 'it holds a lock');
	$proxy->blackhole('replies');
	$proxy->reset_counts;
	foreach (1 .. 20)
	{
		$mallory->query_start('INSERT INTO t VALUES (1)');
		$a->wait_event($mallory, 'guard');
		is($mallory->cancelled, '57014', 'a commit is given up');
	}
	$proxy->wait_all_sent;
	is(sent('multi', qr{^/m/lock/}), 1, 'one check was sent');
	$mallory->query_start('INSERT INTO t VALUES (2)');
	$a->wait_event($mallory, 'guard');
	$proxy->heal;
	ok($mallory->result->{ok}, 'and the next one when that is answered');
	is($a->value('SELECT string_agg(i::text, $$ $$) FROM t'), '2', 'this is what was committed');
	$mallory->query('SELECT zk_unlock_all()');
};

subtest 'long listings of one role are few at a time' => sub {
	my ($paths, $shell, @sessions) = (18, $zk->shell);
	$shell->connect($zk->connect_string, client => 'crowd', timeout => 60);
	foreach my $path (map { "/long/$_" } 1 .. $paths)
	{
		$shell->create($path, makepath => 1);
		$shell->create_many("$path/_c_00000000-0000-4000-8000-000000000000-lock-", 1000, client => 'crowd');
		push @sessions, $a->session(user => 'mallory');
		$sessions[-1]->query_start("SELECT zk_lock('$path')");
		$sessions[-1]->wait_row('blocked_by_node IS NOT NULL', $path);
	}
	# Another one comes to each, so who asks next must look.
	$shell->create("/long/$_/_c_00000000-0000-4000-8000-000000000001-lock-", ephemeral => 1, sequence => 1, client => 'crowd') foreach 1 .. $paths;
	$a->settle;
	$proxy->blackhole('replies');
	$proxy->reset_counts;
	push @sessions, map { my $s = $a->session(user => 'mallory'); $s->query_start("SELECT zk_lock('/long/$_')"); $s } 1 .. $paths;
	wait_until { sent('getChildren', qr{^/long/}) >= 16 } 'listings';
	$proxy->wait_all_sent;
	is(sent('getChildren', qr{^/long/}), 16, 'no more are under way');
	$proxy->heal;
	$shell->close_connection(client => 'crowd');
	is($sessions[$_]->finish, 't', 'a lock is granted') foreach 0 .. $paths - 1;
	$_->disconnect foreach @sessions;
};

$mallory->disconnect;
$zk->shell->delete('/m/leases', recursive => 1);
done_clean($zk, $a);
