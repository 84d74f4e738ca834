# Copyright (c) 2026, zklock contributors
#
# Settings: bad values are refused with a reason, and the limits that settings set are kept.

use Zklock::Test;
use Zklock::Cast qw(fails);
use PostgreSQL::Test::Utils;

my ($zk, $server) = cast('main', conf => ['zklock.max_locks = 4']);
my $s      = $server->session;

# All other values that are refused are in sql/settings.sql.
subtest 'what is too long, or no setting, is refused' => sub {
	foreach my $value (join(',', ('localhost:2181') x 100), 'localhost:2181/' . 'x' x 1100, 'h:1/' . 'x' x 1020)
	{
		fails($s->try("ALTER SYSTEM SET zklock.servers = '$value'"), '22023', length($value) . ' characters are refused',
			detail => 'The value is too long.');
	}
	ok($s->try("ALTER SYSTEM SET zklock.servers = 'h:1/" . 'x' x 1019 . q('))->{ok}, 'one less is accepted');
	$s->query('ALTER SYSTEM RESET zklock.servers');
	is($s->try(q{ALTER SYSTEM SET zklock.nonsense = 'x'})->{ok}, 0, 'a setting that does not exist is refused');
};

sub exhausted($session, $sql, $name)
{
	return fails($session->try($sql), '53200', $name,
		message => 'out of shared memory for zklock', detail => qr/\b4 locks\b/, hint => qr/"zklock\.max_locks"/);
}

subtest 'no more locks can be had than zklock.max_locks says' => sub {
	my $other = $server->session;
	is($s->query(q{SELECT zk_lock('/t/a') AND zk_lock('/t/b') AND zk_lock('/t/c')}), 't', 'three of them');
	is($other->query(q{SELECT zk_lock('/t/d')}), 't', 'and the fourth, in another session');

	exhausted($s,     q{SELECT zk_lock('/t/e')},         'zk_lock');
	exhausted($s,     q{SELECT zk_lock('/t/e', '1 s')},  'zk_lock with a timeout');
	exhausted($other, q{SELECT zk_try_lock('/t/e')},     'zk_try_lock');
	exhausted($other, q{SELECT zk_xact_lock('/t/e')},    'zk_xact_lock');
	# One who waits needs a place, too.
	exhausted($other, q{SELECT zk_lock('/t/a')},         'a wait');
	is($s->query(q{SELECT zk_lock('/t/a') AND zk_try_lock('/t/b') AND zk_unlock('/t/a')}), 't',
		'what is held can be locked again');
	is($server->lock_count(q{state = 'held'}), '4', 'all four are held');
	is(scalar($zk->children('/t/e')), 0, 'the fifth has no node');

	is($s->query(q{SELECT zk_unlock('/t/c')}), 't', 'one is unlocked');
	# Of two only one is to be had: so none is locked, and the place is free again.
	exhausted($other, q{SELECT zk_lock(ARRAY['/t/e', '/t/f'])}, 'two at once');
	is($other->query(q{SELECT string_agg(path, ' ') FROM zk_locks WHERE state = 'held' AND pid = pg_backend_pid()}),
		'/t/d', 'none of the two is held');
	$server->wait_value('SELECT count(*) FROM zk_locks', 3);
	is($other->query(q{SELECT zk_lock('/t/e')}), 't', 'one after the other works');
	exhausted($s, q{SELECT zk_lock('/t/f')}, 'the next');
	$other->disconnect;
	$server->wait_value('SELECT count(*) FROM zk_locks', 2);
	is($s->query(q{SELECT zk_lock('/t/e')}), 't', 'the end of a session makes room');
	$s->query('SELECT zk_unlock_all()');
};

subtest 'no place gets lost, whatever the end of a lock' => sub {
	# There would be none left otherwise.
	foreach my $round (1 .. 3)
	{
		my ($session, $waiter) = map { $server->session } 1, 2;
		my @paths = map { "'/t/$round$_'" } qw(a b c d);
		foreach my $case (
			[ 'SELECT zk_lock(ARRAY[' . join(', ', @paths) . '])', 'DISCARD ALL' ],
			[ 'BEGIN; SELECT ' . join(' AND ', map { "zk_xact_lock($_)" } @paths), 'ROLLBACK' ],
			[ 'SELECT ' . join(' AND ', map { "zk_lock($_)" } @paths), "SELECT zk_unlock($paths[3])" ])
		{
			my ($take, $give) = @$case;
			$server->wait_value('SELECT count(*) FROM zk_locks', 0);
			is($session->query($take), 't', "all four: $take");
			exhausted($waiter, "SELECT zk_lock($paths[0])", 'there is no place for a waiter');
			exhausted($session, q{SELECT zk_lock('/t/e')}, 'nor for a fifth lock');
			$session->query($give);
		}
		$waiter->start_waiting("SELECT zk_lock($paths[0])");
		is($waiter->cancelled, '57014', "round $round: a wait is cancelled");
		$session->terminate;
	}
	$server->wait_value('SELECT count(*) FROM zk_locks', 0);
	is($s->query(q{SELECT zk_lock(ARRAY['/t/a', '/t/b', '/t/c', '/t/d']) AND zk_unlock(ARRAY['/t/a', '/t/b', '/t/c', '/t/d'])}),
		't', 'everything works as at the beginning');

	$server->assert_clean($zk);
	$s->disconnect;
};

my $most;
my $used = q{SELECT size FROM pg_shmem_allocations WHERE name = 'zklock'};
sub shared_memory(@conf)
{
	$server->append_conf('postgresql.conf', join("\n", @conf));
	$server->restart;
	return $server->value($used);
}

subtest 'the most locks possible take less than 64 MB of shared memory' => sub {
	$most = shared_memory('zklock.max_locks = 16384');
	cmp_ok($most, '<', 64 * 1024 * 1024, 'the most locks possible take less than 64 MB of shared memory');
	$server->wait_session;
	$s = $server->session;
	is($s->query(q{SELECT zk_lock(array_agg('/t/many/' || n)) FROM generate_series(1, 1000) n}), 't', 'with which a thousand are locked');
	is($s->query(q{SELECT count(*) FROM zk_locks WHERE state = 'held'}), '1000', 'and held');
	$s->query('SELECT zk_unlock_all()');
	$server->assert_clean($zk);
	$s->disconnect;
};

subtest 'hooks of other extensions are called, and call ours' => sub {
	foreach my $libraries ('pg_stat_statements, zklock', 'zklock, pg_stat_statements')
	{
		$server->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'");
		# Not by the harness, which gives it a name: without one, the node tells its address.
		$server->stop;
		PostgreSQL::Test::Utils::system_or_bail('pg_ctl', '-s', '-w', '-D', $server->data_dir, '-l', $server->logfile,
			'start');
		$server->node->_update_pid(1);
		$server->wait_session;
		$s = $server->session;
		$s->query('CREATE EXTENSION IF NOT EXISTS pg_stat_statements');
		$s->query('SELECT pg_stat_statements_reset()');
		is($s->query(q{SELECT zk_lock('/t/a')}), 't', "$libraries: a lock");
		my ($node) = $zk->children('/t/a');
		my $port = $server->port;
		like($zk->shell->get("/t/a/$node"), qr/"server":"[^":]+:$port"/, "$libraries: its node tells host and port");
		$s->query('DISCARD ALL');
		is($server->lock_count(q{state = 'held'}), 0, "$libraries: DISCARD ALL releases it");
		is($s->query(q{SELECT calls FROM pg_stat_statements WHERE query = 'DISCARD ALL'}), '1',
			"$libraries: and is noticed by the other");
		$s->disconnect;
	}
	Zklock::Server->assert_clean($zk, [$server], '/t/a');
};

subtest 'the default is 64 locks for each connection' => sub {
	my $by_number = shared_memory('max_connections = 20', 'zklock.max_locks = 1280');
	is(shared_memory('zklock.max_locks = -1'), $by_number, 'the default is 64 locks for each connection');
	cmp_ok($by_number, '<', $most / 5, 'which is less memory');
	is(shared_memory('max_connections = 300'), $most, 'but no more than the most possible');
};

subtest 'a tick time with which nothing can be proved is reported' => sub {
	my $mark = $server->log_mark;
	shared_memory(q{zklock.tick_time = '6s'}, q{zklock.session_timeout = '5000ms'});
	$server->wait_log(qr/WARNING:  "zklock\.tick_time" is 6000 ms, too long for a session timeout of 5000 ms/, $mark);
	pass('a tick time with which nothing can be proved is reported');
};

done_testing;
