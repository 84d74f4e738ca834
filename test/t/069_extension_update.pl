# Copyright (c) 2026, zklock contributors
#
# A newer library with the SQL of version 1.0, and the way from there to 1.1.

use strict;
use warnings;

use Test::More;
use Zklock::Catalog qw(describe call_all);
use Zklock::Server;
use Zklock::ZooKeeper;

my $zk     = Zklock::ZooKeeper->standalone;
my $server = Zklock::Server->new('main', zookeeper => $zk);

sub database
{
	my ($name, $schema, $version) = @_;
	$server->value("CREATE DATABASE $name");
	my $session = $server->session(dbname => $name);
	$session->query(qq{CREATE SCHEMA IF NOT EXISTS "$schema"});
	$session->query(qq{CREATE EXTENSION zklock SCHEMA "$schema"} . ($version ? " VERSION '$version'" : ''));
	return $session;
}

# All answer, or refuse nulls.
sub all_answer
{
	my ($session) = @_;
	my %state = call_all($session);
	is(join(' ', grep { $state{$_} !~ /^(?:00000|22004)$/ } sort keys %state), '',
		keys(%state) . ' functions answer, or refuse nulls');
	return scalar keys %state;
}

my $columns = q{SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'zk_session'::regclass AND attnum > 0};
my $old = database('old', 'public', '1.0');
$server->value('CREATE ROLE reader LOGIN');
my $reader = $server->session(dbname => 'old', user => 'reader');

subtest 'the SQL of 1.0 works with this library' => sub {
	cmp_ok(all_answer($old), '>=', 30, 'all of them');
	is($old->query(q{SELECT zk_lock('/up/a'), zk_lock_shared('/up/s'), zk_semaphore_acquire('/up/slots', 2)}), 't|t|t', 'locks');
	is($old->query(q{SELECT zk_fence('/up/a', zk_fencing_token('/up/a')) IS NULL}), 'f', 'a fence');
	is($old->query(q{SELECT string_agg(path || ' ' || state, ', ' ORDER BY path) FROM zk_locks}),
		'/up/a held, /up/s held, /up/slots held', 'the view of locks');
	is($old->query('SELECT state, last_error FROM zk_session'), 'connected|', 'and of the session');
	is($old->query($columns),
		'state server session_id negotiated_timeout lease_remaining connected_since worker_pid reconnects expirations last_error last_error_at',
		'with its columns');
	is($reader->try('SELECT * FROM zk_locks')->{sqlstate}, '42501', 'privileges are those of 1.0');
};

subtest 'the update keeps what users have built, granted and locked' => sub {
	$old->query($_) foreach
	  'CREATE VIEW my_session AS SELECT * FROM zk_session',
	  'CREATE VIEW my_function AS SELECT * FROM zk_session()',
	  'CREATE VIEW my_locks AS SELECT l.*, s.state AS session_state FROM zk_locks l, zk_session s',
	  'GRANT SELECT ON zk_session, my_session, my_function, my_locks TO reader',
	  'GRANT EXECUTE ON FUNCTION zk_session() TO reader';
	# The lock that says whose turn it is at the semaphore may still be on its way out.
	$server->wait_value('SELECT locks_in_use FROM zk_session', 3);
	my $fences = $old->query('SELECT * FROM zk_fences');
	my $token = $old->query(q{SELECT zk_fencing_token('/up/a')});
	ok($old->try('ALTER EXTENSION zklock UPDATE')->{ok}, 'ALTER EXTENSION UPDATE');
	is($old->query(q{SELECT extversion FROM pg_extension WHERE extname = 'zklock'}), '1.1', 'to 1.1');
	is($old->query('SELECT * FROM zk_fences'), $fences, 'the fences are there');
	is($old->query(q{SELECT zk_fencing_token('/up/a')}), $token, 'so are the locks');
	is($reader->query('SELECT state FROM my_session'), 'connected', "a user's view of the session");
	is($reader->query('SELECT state FROM my_function'), 'connected', 'one of the function');
	is($reader->query(q{SELECT count(*) FROM my_locks WHERE session_state = 'connected'}), 3, 'and one of both');
	is($reader->query('SELECT max_locks, locks_in_use, obstacle FROM zk_session'), '6400|3|', 'who might read it, may read all of it');
	like($old->query($columns), qr/^state server .* last_error last_error_at max_locks locks_in_use obstacle$/,
		'new columns are the last');
	is($old->query(q{SELECT zk_unlock('/up/a'), zk_unlock_shared('/up/s'), zk_semaphore_release('/up/slots')}), 't|t|t',
		'what was locked before is unlocked');
	all_answer($old);
};

subtest 'an updated extension is the same as a new one' => sub {
	my $updated = database('updated', 'some where', '1.0');
	$updated->query(q{ALTER EXTENSION zklock UPDATE TO '1.1'});
	my $fresh = database('fresh', 'some where');
	my ($was, $is) = map { describe($_) } $fresh, $updated;
	my %fresh = map { $_ => 1 } split /\n/, $was;
	is(join("\n", grep { !delete $fresh{$_} } split /\n/, $is), '', 'there is nothing else in the catalogs');
	is(join("\n", sort keys %fresh), '', 'nor is anything missing');
	is($is, $was, 'and it is the same for each object') if !%fresh;
	cmp_ok(scalar(split /\n/, $is), '>', 200, 'which is a lot');
	foreach my $change ('COMMENT ON FUNCTION zk_fencing_token(text) IS NULL', 'REVOKE SELECT ON zk_locks FROM PUBLIC',
		'ALTER TABLE zk_fences DISABLE TRIGGER keep_local', 'ALTER TABLE zk_fences ALTER token DROP NOT NULL')
	{
		$updated->query($_) foreach 'BEGIN', 'SET LOCAL search_path = "some where"', $change, 'RESET search_path';
		isnt(describe($updated), $was, "a difference is seen: $change");
		$updated->query('ROLLBACK');
	}
	foreach my $session ($updated, $fresh)
	{
		$session->query('SET search_path = "some where"');
		is($session->query(q{SELECT zk_lock('/up/a')}), 't', $session->name . ': a lock in another schema');
		is($session->query(q{SELECT max_locks FROM zk_session}), '6400', 'and the view');
		is($session->query(q{SELECT zk_unlock('/up/a')}), 't', 'unlocked');
		$session->disconnect;
	}
};

$old->disconnect;
$reader->disconnect;
Zklock::Server->assert_clean($zk, [$server], '/up/a', '/up/s', '/up/slots/leases', '/up/slots/locks');
done_testing;
