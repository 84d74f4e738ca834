# Copyright (c) 2026, zklock contributors
#
# zklock.keep_idle: a lock that its session has released is kept for it. The session has it again
# without asking ZooKeeper or waking the worker, with a higher token each time; nobody holds it
# meanwhile, and it goes when the time is over, or the session ends.

use strict;
use warnings;

use Test::More;
use Zklock::Cast qw(:DEFAULT token clean);
use Zklock::Server;
use Zklock::Util qw(increasing wait_until);
use Zklock::ZooKeeper;

my $zk = Zklock::ZooKeeper->standalone;
my $a  = Zklock::Server->new('a', zookeeper => $zk);
my $id = $a->session_id;

# A session that keeps what it releases
sub keeper
{
	my ($name, $time) = @_;
	on($a, $name)->query("SET zklock.keep_idle = '" . ($time // '10min') . "'");
	return $s{$name};
}

# What this server has asked ZooKeeper since, but for heartbeats
sub asked
{
	my ($mark) = @_;
	my $count = $zk->requests($mark, session => $id);
	return join ' ', map { "$_=$count->{$_}" } grep { !/^(multi|ping)$/ } sort keys %$count;
}

sub kept_so_far { return $a->value("SELECT sum(kept) FROM zk_stats"); }
sub state_of
{
	my ($name, $path) = @_;
	return join ',', map { "$_->{state} $_->{granted}" } $a->locks('pid = ' . $s{$name}->pid . ($path ? " AND path = '$path'" : ''));
}

subtest 'a session has again what it has released' => sub {
	my $k = keeper('k');
	is($k->query("SELECT zk_lock('/k/a')"), 't', 'it has the lock');
	my @tokens = (token('k', '/k/a'));
	is($k->query("SELECT zk_unlock('/k/a')"), 't', 'and releases it');
	is(state_of('k'), 'kept f', 'which nobody holds');
	is(scalar $zk->children('/k/a'), 1, 'its node is there');
	my $mark = $zk->mark;
	foreach (1 .. 50)
	{
		is($k->query("SELECT zk_lock('/k/a')"), 't', 'again') if $_ == 1;
		$k->query("SELECT zk_lock('/k/a')") if $_ > 1;
		push @tokens, token('k', '/k/a');
		is(state_of('k'), 'held t', 'it is held') if $_ == 1;
		$k->query("SELECT zk_unlock('/k/a')");
	}
	is(asked($mark), '', '50 times, without a request to ZooKeeper');
	ok(increasing(@tokens), 'each time with a higher token') || diag("@tokens");
	foreach ('COMMIT', 'ROLLBACK')
	{
		$k->query('BEGIN');
		is($k->query("SELECT zk_xact_lock('/k/a', '1s')"), 't', "at transaction level: $_");
		push @tokens, token('k', '/k/a');
		is($k->query("SELECT scope || ' ' || count FROM zk_locks WHERE pid = pg_backend_pid()"), 'transaction 1', 'as is shown');
		$k->query($_);
		is(state_of('k'), 'kept f', 'kept');
	}
	is($k->query("SELECT zk_try_lock('/k/a')"), 't', 'by a call that does not wait');
	push @tokens, token('k', '/k/a');
	$k->query('SELECT zk_unlock_all()');
	ok(increasing(@tokens), 'the tokens grow');
	is(asked($mark), '', 'no request');
	is($k->try("SELECT zk_fencing_token('/k/a')")->{sqlstate}, '55000', 'there is no token of what is kept');
	like($k->query("SELECT zk_unlock('/k/a')"), qr/^f$/, 'and nothing to unlock');
	is(kept_so_far(), 53, 'it is counted');
};

subtest 'however often' => sub {
	my $k = keeper('k');
	$k->query("CREATE TABLE seen (token bigint, n int)");
	my $mark = $zk->mark;
	$k->query("DO \$\$ BEGIN FOR i IN 1 .. 4200 LOOP PERFORM zk_lock('/k/often'); "
		  . "INSERT INTO seen VALUES (zk_fencing_token('/k/often'), i); PERFORM zk_unlock('/k/often'); END LOOP; END \$\$");
	is($k->query('SELECT count(*) FROM (SELECT token, lag(token) OVER (ORDER BY n) AS before FROM seen) t WHERE token <= before'), 0, 'the tokens grow');
	my $count = $zk->requests($mark, session => $id);
	is($count->{create2}, 3, 'with a new node after 4095 grants, and one try at a path that was missing');
};

subtest 'it can be seen' => sub {
	is($a->value("SELECT granted, kept FROM zk_contenders('/k/a')"), 'f|t', 'zk_contenders: kept, and not granted');
	is($a->value("SELECT state, granted, fencing_token IS NULL, granted_at IS NULL, expires_at > now() FROM zk_locks WHERE path = '/k/a'"),
		'kept|f|t|t|t', 'zk_locks: until when');
	$s{k}->query("SELECT zk_lock('/k/a')");
	is($a->value("SELECT granted, kept, fencing_token IS NOT NULL FROM zk_contenders('/k/a')"), 't|f|t', 'held');
	$s{k}->query("SELECT zk_unlock('/k/a')");
};

subtest 'another session of the server has it at once' => sub {
	my $before = token_after('k');
	my $mark = $zk->mark;
	foreach my $how (qw(zk_lock zk_try_lock))
	{
		is(on($a, 'other')->query("SELECT $how('/k/a')"), 't', $how);
		cmp_ok(token('other', '/k/a'), '>', $before, 'with a higher token');
		$before = token('other', '/k/a');
		is(on($a, 'k')->query("SELECT zk_try_lock('/k/a')"), 'f', 'the keeper has it no more');
		is($s{other}->query("SELECT zk_unlock('/k/a')"), 't', 'the other releases it');
		$before = token_after('k');
	}
	keeper('other');
	is($s{other}->query("SELECT zk_lock('/k/a')"), 't', 'one that keeps it, too');
	is($s{other}->query("SELECT zk_unlock('/k/a')"), 't', 'has released it');
	is(state_of('other', '/k/a'), 'kept f', 'and kept');
	is(state_of('k', '/k/a'), '', 'the first has not');
};

sub token_after
{
	my ($name) = @_;
	my $token = $s{$name}->query("SELECT zk_lock('/k/a')") && token($name, '/k/a');
	$s{$name}->query("SELECT zk_unlock('/k/a')");
	return $token;
}

subtest 'until the time is over' => sub {
	my $short = keeper('short', '300ms');
	$short->query("SELECT zk_lock('/k/short'), zk_unlock('/k/short')");
	wait_until { $zk->children('/k/short') == 0 } 'the node is gone';
	wait_until { state_of('short') eq '' } 'and the entry';
	is($short->query("SELECT zk_lock('/k/short')"), 't', 'it has the lock anew');
	is($short->query("SET zklock.keep_idle = 0; SELECT zk_unlock('/k/short')"), 't', 'without keep_idle');
	is(state_of('short'), '', 'it goes at once');
	is(scalar $zk->children('/k/short'), 0, 'with its node');
};

subtest 'of shared locks, and of many' => sub {
	my $k = keeper('k');
	$k->query("SELECT zk_lock_shared('/k/s'), zk_lock(ARRAY['/k/m1', '/k/m2', '/k/m3'])");
	$k->query("SELECT zk_unlock_shared('/k/s'), zk_unlock(ARRAY['/k/m1', '/k/m2', '/k/m3'])");
	is($a->value(q{SELECT count(*) FROM zk_locks WHERE state = 'kept' AND path ~ '/k/[sm]'}), 4, 'all are kept');
	my $mark = $zk->mark;
	foreach (1 .. 3)
	{
		is($k->query("SELECT zk_lock_shared('/k/s') AND zk_lock(ARRAY['/k/m1', '/k/m2', '/k/m3'])"), 't', 'and had again');
		$k->query("SELECT zk_unlock_shared('/k/s'), zk_unlock(ARRAY['/k/m1', '/k/m2', '/k/m3'])");
	}
	is(asked($mark), '', 'without a request');
	is($k->query("SELECT zk_lock('/k/s')"), 't', 'what is kept shared can be had exclusively');
	is($k->query("SELECT zk_unlock('/k/s')"), 't', 'which is released');
	is($k->query("SELECT zk_lock_shared('/k/s')"), 't', 'and the other way round');
	is($k->query("SELECT zk_unlock_shared('/k/s')"), 't', 'which is released');
	is($k->query("SELECT zk_lock('/k/s') AND zk_lock_shared('/k/s') AND zk_unlock('/k/s')"), 't', 'a downgrade');
	is_deeply([ $k->modes('/k/s') ], ['shared held'], 'is one');
	is($k->query("SELECT zk_unlock_shared('/k/s')"), 't', 'and what is left of it');
	is(scalar $zk->children('/k/s'), 0, 'is not kept');
};

subtest 'but not longer than it may be held' => sub {
	my $k = keeper('k');
	$k->query("SET zklock.max_hold_time = '400ms'");
	foreach (1 .. 3)
	{
		$k->query("SELECT zk_lock('/k/max')");
		is($k->query("SELECT expires_at > now() FROM zk_locks WHERE path = '/k/max'"), 't', 'a new time begins');
		$k->query("SELECT zk_unlock('/k/max')") if $_ < 3;
	}
	is(on($a, 'next')->query("SELECT zk_lock('/k/max', '30s')"), 't', 'when it is over another session has it');
	is($k->try("SELECT zk_fencing_token('/k/max')")->{sqlstate}, '40001', 'and the first is told so');
	$k->query('RESET zklock.max_hold_time');
	$s{next}->query("SELECT zk_unlock('/k/max')");
	$k->query("SELECT zk_unlock('/k/max')");
};

subtest 'and not for another role' => sub {
	$a->value('CREATE ROLE someone; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO someone');
	my $k = keeper('k');
	$k->query("SELECT zk_lock('/k/role'), zk_unlock('/k/role')");
	$k->query("SET SESSION AUTHORIZATION someone");
	my $kept = kept_so_far();
	is($k->query("SELECT zk_lock('/k/role')"), 't', 'it asks for it');
	is(kept_so_far(), $kept, 'anew');
	$k->query("SELECT zk_unlock('/k/role')");
	$k->query('RESET SESSION AUTHORIZATION');
};

subtest 'DISCARD ALL releases, and keeps for as long as the server has it' => sub {
	my $k = keeper('k');
	$k->query("SELECT zk_lock('/k/discard')");
	$k->query('DISCARD ALL');
	is(scalar $zk->children('/k/discard'), 0, 'not at all');
	$a->set_conf('zklock.keep_idle' => '10min');
	wait_until { $k->query('SHOW zklock.keep_idle') eq '10min' } 'the setting is taken up';
	$k->query("SELECT zk_lock('/k/discard')");
	$k->query('DISCARD ALL');
	is(state_of('k', '/k/discard'), 'kept f', 'for ten minutes');
	$a->set_conf('zklock.keep_idle' => '5min');
	wait_until { $zk->children('/k/discard') == 0 } 'a change lets go of what is kept';
	is($k->query("SELECT zk_lock('/k/discard')"), 't', 'and it is locked again');
};

subtest 'a session that ends lets go' => sub {
	$s{k}->query("SELECT zk_unlock('/k/discard')");
	is(state_of('k', '/k/discard'), 'kept f', 'of what it has kept');
	all_disconnect;
	wait_until { $a->lock_count == 0 } 'no entries';
	is(scalar $zk->children("/k/$_"), 0, "no node at $_") foreach qw(discard a m1 m2 m3);
};

clean($zk, [$a], map { "/k/$_" } qw(a s m1 m2 m3 short max role discard often));
done_testing;
