# Copyright (c) 2026, zklock contributors
#
# A newer library with the SQL of version 1.0, and the way from there to 1.1.

use strict;
use warnings;

use Test::More;
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

# All that the catalogs say about the extension's objects
my $description = q{
	WITH member AS (
		SELECT classid, objid FROM pg_depend
		WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
			AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
			AND classid IN ('pg_class'::regclass, 'pg_proc'::regclass))
	SELECT pg_describe_object(classid, objid, 0), obj_description(objid, (SELECT relname FROM pg_class WHERE oid = classid)),
		(SELECT pg_get_functiondef(p.oid) || coalesce(proacl::text, '') FROM pg_proc p WHERE classid = 'pg_proc'::regclass AND p.oid = objid),
		(SELECT pg_get_viewdef(c.oid) FROM pg_class c WHERE classid = 'pg_class'::regclass AND c.oid = objid AND relkind = 'v'),
		(SELECT relacl::text FROM pg_class c WHERE classid = 'pg_class'::regclass AND c.oid = objid),
		(SELECT string_agg(concat_ws(' ', attnum, attname, format_type(atttypid, atttypmod), attnotnull, attcollation,
			col_description(attrelid, attnum)), ', ' ORDER BY attnum) FROM pg_attribute
			WHERE classid = 'pg_class'::regclass AND attrelid = objid AND attnum > 0),
		(SELECT string_agg(tgenabled::text || pg_get_triggerdef(t.oid), ', ' ORDER BY tgname) FROM pg_trigger t
			WHERE classid = 'pg_class'::regclass AND tgrelid = objid),
		(SELECT string_agg(concat_ws(' ', privtype, initprivs::text), ', ' ORDER BY objsubid) FROM pg_init_privs i
			WHERE i.classoid = classid AND i.objoid = objid)
	FROM member ORDER BY 1};

# Calls every function of the extension, with nulls for arguments, and gives what becomes
# of each; none may end the session.
sub call_all
{
	my ($session) = @_;
	my @calls = split /\n/, $session->query(q{
		SELECT format('SELECT * FROM %s(%s)', p.oid::regproc,
			(SELECT string_agg(format('NULL::%s', format_type(type, NULL)), ', ' ORDER BY n)
			FROM unnest(proargtypes::oid[]) WITH ORDINALITY a (type, n)))
		FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
		WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
			AND prorettype <> 'trigger'::regtype
		ORDER BY p.oid::regprocedure::text});
	my %state = map { $_ => $session->try($_)->{sqlstate} } @calls;
	is(join(' ', grep { $state{$_} !~ /^(?:00000|22004)$/ } @calls), '', @calls . ' functions answer, or refuse nulls');
	return scalar @calls;
}

my $columns = q{SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'zk_session'::regclass AND attnum > 0};
my $old = database('old', 'public', '1.0');
$server->value('CREATE ROLE reader LOGIN');
my $reader = $server->session(dbname => 'old', user => 'reader');

subtest 'the SQL of 1.0 works with this library' => sub {
	cmp_ok(call_all($old), '>=', 30, 'all of them');
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
	call_all($old);
};

subtest 'an updated extension is the same as a new one' => sub {
	my $updated = database('updated', 'some where', '1.0');
	$updated->query(q{ALTER EXTENSION zklock UPDATE TO '1.1'});
	my $fresh = database('fresh', 'some where');
	my ($was, $is) = map { $_->query($description) } $fresh, $updated;
	is($is, $was, 'in all that the catalogs say');
	cmp_ok(scalar(split /\n/, $is), '>', 30, 'which is a lot');
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
