# Copyright (c) 2026, zklock contributors
#
# What both extensions grant depends neither on default privileges nor on the schema, and nothing that others have made in
# that schema is taken for PostgreSQL's own. Nor do settings count. What the owner of a database, who is no superuser, does with it goes on working.

use Zklock::Test;
use Zklock::Cast qw(fails);
use PostgreSQL::Test::Utils;

my $server = Zklock::Server->new('plain', preload => 0, extension => 0);
$server->value($_) foreach 'CREATE ROLE app', 'CREATE ROLE "other App"', 'CREATE ROLE landlord LOGIN';

# A session in a new database
sub database($name, @sql)
{
	$server->value("CREATE DATABASE $name OWNER landlord");
	my $session = $server->session(dbname => $name);
	$session->query($_) foreach @sql;
	return $session;
}

my @create = ('SET client_min_messages = error', 'CREATE EXTENSION zklock', 'CREATE EXTENSION zklock_advisory');

# Privileges on all objects of the extensions and their types and columns, one in a line
sub privileges($session)
{
	return $session->query(q{
		WITH member AS (
			SELECT classid, objid FROM pg_depend WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
				AND refobjid IN (SELECT oid FROM pg_extension WHERE extname LIKE 'zklock%')),
		object (kind, name, acl) AS (
			SELECT 'function', format('%s(%s)', proname, oidvectortypes(proargtypes)),
				coalesce(proacl, acldefault('f', proowner)) FROM pg_proc WHERE ('pg_proc'::regclass, oid) IN (TABLE member)
			UNION ALL SELECT 'relation', relname, coalesce(relacl, acldefault('r', relowner)) FROM pg_class
			WHERE ('pg_class'::regclass, oid) IN (TABLE member)
			UNION ALL SELECT 'column', attname, attacl FROM pg_attribute
			WHERE ('pg_class'::regclass, attrelid) IN (TABLE member)
			UNION ALL SELECT 'schema', nspname, coalesce(nspacl, acldefault('n', nspowner)) FROM pg_namespace
			WHERE ('pg_namespace'::regclass, oid) IN (TABLE member)
			UNION ALL SELECT 'type', typname, coalesce(typacl, acldefault('T', typowner)) FROM pg_type
			WHERE ('pg_class'::regclass, typrelid) IN (TABLE member) OR typelem IN (SELECT oid FROM pg_type WHERE ('pg_class'::regclass, typrelid) IN (TABLE member)))
		SELECT string_agg(format('%s %s: %s has %s%s', kind, name, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END,
			privilege_type, CASE WHEN is_grantable THEN ' grantable' END), E'\n' ORDER BY kind, name, grantee, privilege_type COLLATE "C")
		FROM object, aclexplode(acl)});
}

my $usual = privileges(database('usual', @create));
like($usual, qr/^function zk_lock\(text, interval\): postgres has EXECUTE\nfunction zk_lock\(text\[\]/m, 'nobody but the owner may lock');
like($usual, qr/^function pg_advisory_lock\(bigint\): postgres has EXECUTE\nfunction pg_advisory_lock\(int/, 'nor take an advisory lock over all servers');
is(join(' ', $usual =~ /^function (\w+).*PUBLIC has EXECUTE$/mg), 'zk_locks zk_stats', 'and everybody may look');
is(join(' ', sort $usual =~ /^(?:relation|schema) (\w+): pg_database_owner has (?:USAGE|SELECT)$/mg), 'zk_fences zk_fencing', 'the owner of the database reads what is dumped');

subtest 'default privileges change nothing' => sub {
	my @kinds = qw(TABLES FUNCTIONS TYPES SEQUENCES);
	my %defaults = (
		granted    => [ map { "ALTER DEFAULT PRIVILEGES GRANT ALL ON $_ TO app, \"other App\" WITH GRANT OPTION" } @kinds, 'SCHEMAS' ],
		to_public  => [ map { "ALTER DEFAULT PRIVILEGES GRANT ALL ON $_ TO PUBLIC" } @kinds, 'SCHEMAS' ],
		in_schema  => [ map { "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON $_ TO app, PUBLIC, landlord" } @kinds ],
		revoked    => [ map { "ALTER DEFAULT PRIVILEGES REVOKE ALL ON $_ FROM PUBLIC, CURRENT_USER" } @kinds, 'SCHEMAS' ],
		both_ways  => [ map { ("ALTER DEFAULT PRIVILEGES REVOKE ALL ON $_ FROM PUBLIC, CURRENT_USER",
			"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON $_ TO app") } @kinds ]);
	foreach my $name (sort keys %defaults)
	{
		my $session = database($name, @{ $defaults{$name} }, @create);
		is(privileges($session), $usual, "$name: privileges");
		# What pg_dump takes for the extension's own
		is($session->query(q{SELECT count(*) FROM pg_init_privs i JOIN pg_proc p ON p.oid = objoid AND classoid = 'pg_proc'::regclass
			WHERE probin LIKE '%/zklock' AND initprivs IS DISTINCT FROM proacl}), '0', "$name: which are the extension's own");
	}
};

subtest 'nor do settings of the session, which the owner of a database may set for all' => sub {
	my $views = q{SELECT pg_get_viewdef(oid) FROM pg_class WHERE relkind = 'v' AND relname ~ '^zk_' OR oid = 'zk_advisory.pg_locks'::regclass ORDER BY relname};
	my $session = database('settings');
	$session->try("SET $_") foreach 'standard_conforming_strings = off', 'quote_all_identifiers = on', 'array_nulls = off', 'transform_null_equals = on', q{plpgsql.extra_errors = 'all'};
	ok($session->try($_)->{ok}, $_) foreach @create;
	$session->query('RESET ALL');
	is(privileges($session), $usual, 'privileges');
	is($session->query($views), $server->session(dbname => 'usual')->query($views), 'views');
};

subtest 'functions and operators that others have made in the schema are not called' => sub {
	my $session = database('hostile', 'GRANT CREATE ON SCHEMA public TO app', 'CREATE TABLE called (what text, who text)', 'GRANT INSERT ON called TO PUBLIC', 'SET search_path = pg_catalog');
	# The same names, with types that would fit better
	$session->query(q{DO $do$
		DECLARE
			types constant text[] := '{text,name,varchar,bpchar,oid,regclass,regproc,regnamespace,int4,int8,int2,bool,numeric,"\"char\""}';
			name text;
			a text;
			b text;
		BEGIN
			SET LOCAL ROLE app;
			FOREACH a IN ARRAY types LOOP
				EXECUTE format($f$CREATE FUNCTION public.evil(a %1$s) RETURNS %1$s LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.called VALUES (''%1$s'', current_user); RETURN a; END'$f$, a);
				FOREACH name IN ARRAY ARRAY['concat_ws', 'format', 'quote_ident', 'pg_get_userbyid', 'aclexplode', 'current_setting', 'set_config', 'regexp_match', 'string_agg',
						'upper', 'zk_locks', 'zk_fence', 'pg_extension_config_dump'] LOOP
					EXECUTE format($f$CREATE FUNCTION public.%2$s(a %1$s) RETURNS %1$s LANGUAGE plpgsql AS 'BEGIN RETURN public.evil(a); END'$f$, a, name);
				END LOOP;
				FOREACH b IN ARRAY types LOOP
					EXECUTE format($f$CREATE FUNCTION public.evil(a %1$s, b %2$s) RETURNS bool LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.called VALUES (''%1$s %2$s'', current_user); RETURN true; END'$f$, a, b);
					FOREACH name IN ARRAY ARRAY['=', '<>', '<', '<=', '>', '>=', '||', '&', '>>', '~', '+', '-'] LOOP
						CONTINUE WHEN EXISTS (SELECT FROM pg_catalog.pg_operator WHERE oprname = name AND oprleft = a::regtype AND oprright = b::regtype);
						EXECUTE format($f$CREATE OPERATOR public.%3$s (FUNCTION = public.evil, LEFTARG = %1$s, RIGHTARG = %2$s)$f$, a, b, name);
					END LOOP;
					FOREACH name IN ARRAY ARRAY['concat_ws', 'format', 'current_setting', 'regexp_match', 'pg_extension_config_dump'] LOOP
						EXECUTE format($f$CREATE FUNCTION public.%3$s(a %1$s, b %2$s) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN public.evil(a, b); END'$f$, a, b, name);
					END LOOP;
				END LOOP;
			END LOOP;
		END $do$});
	$session->query('RESET search_path');
	$session->query(q{SELECT count(*) FROM pg_class WHERE oid = 'pg_class'::regclass});
	is($session->query('SELECT who FROM called LIMIT 1'), 'postgres', 'what a superuser writes carelessly calls them');
	$session->query('DELETE FROM called');
	ok($session->try($_)->{ok}, $_) foreach @create;
	$session->try($_) foreach q{SELECT zk_fence('/f/lock', 1)}, q{SELECT zk_fence('/f/lock', 1)}, 'SELECT * FROM zk_advisory.pg_locks', 'SELECT * FROM zk_locks',
	  'SELECT * FROM zk_session', 'SELECT * FROM zk_stats', 'DELETE FROM zk_fencing.zk_fences';
	$session->query('SET search_path = pg_catalog');
	is($session->query('SELECT string_agg(what, $$, $$) FROM public.called'), '', 'nothing is called');
	is($session->query(q{SELECT string_agg(DISTINCT pg_describe_object(refclassid, refobjid, 0), ', ') FROM pg_depend d JOIN pg_rewrite r ON classid = 'pg_rewrite'::regclass AND objid = r.oid
		WHERE ev_class::regclass::text LIKE '%zk\_%' AND refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
			AND NOT EXISTS (SELECT FROM pg_depend m WHERE m.deptype = 'e' AND (m.classid, m.objid) = (d.refclassid, d.refobjid))}), '', 'nor has a view anything of theirs');
	is(privileges($session), $usual, 'privileges are the usual ones');
};

subtest 'a schema that is there already is nobody\'s gift' => sub {
	my $session = database('taken', 'CREATE SCHEMA zk_fencing AUTHORIZATION app', 'CREATE SCHEMA zk_advisory AUTHORIZATION app');
	fails($session->try('CREATE EXTENSION zklock'), '42P06', 'zk_fencing');
	$session->query($_) foreach 'DROP SCHEMA zk_fencing', $create[1];
	fails($session->try('CREATE EXTENSION zklock_advisory'), '42P06', 'zk_advisory');
};

subtest 'the owner of the database is no superuser' => sub {
	my $session = database('owned', @create, q{SELECT zk_fence('/f/lock', 7)});
	my $landlord = $server->session(dbname => 'owned', user => 'landlord');
	foreach my $grant ('SELECT ON ALL TABLES', 'ALL ON ALL TABLES', 'EXECUTE ON ALL FUNCTIONS')
	{
		my $state = $landlord->try("GRANT $grant IN SCHEMA public TO app")->{sqlstate};
		is($state, $grant =~ /FUNCTIONS/ ? '42501' : '00000', "GRANT $grant IN SCHEMA public");
	}
	is(privileges($session), $usual, 'which grants nothing of ours');
	my $dump = PostgreSQL::Test::Utils::tempdir . '/dump';
	$server->node->command_ok([ qw(pg_dump -Fc -U landlord -f), $dump, '-d', $server->connstr('owned') ], 'pg_dump');
	$server->value('CREATE DATABASE restored TEMPLATE template0');
	$server->node->command_ok([ 'pg_restore', '-d', $server->connstr('restored'), $dump ], 'can be restored');
	my $restored = $server->session(dbname => 'restored');
	is($restored->query('SELECT path, token FROM zk_fencing.zk_fences'), '/f/lock|7', 'with the fences');
	is(privileges($restored), $usual, 'and the usual privileges');
	foreach my $sql ('DROP SCHEMA zk_fencing CASCADE', 'DROP TABLE zk_fencing.zk_fences', 'CREATE TABLE zk_fencing.mine ()', 'DELETE FROM zk_fencing.zk_fences')
	{
		fails($landlord->try($sql), '42501', $sql);
	}
	$_->disconnect foreach $landlord, $restored;
};

subtest 'in a schema of its own, zklock outlives public' => sub {
	my $session = database('apart', 'CREATE SCHEMA zklock', 'CREATE EXTENSION zklock SCHEMA zklock', 'CREATE EXTENSION zklock_advisory',
		q{SELECT zklock.zk_fence('/f/lock', 7)});
	my $landlord = $server->session(dbname => 'apart', user => 'landlord');
	$landlord->query('DROP SCHEMA public CASCADE');
	is($session->query('SELECT path, token FROM zk_fencing.zk_fences'), '/f/lock|7', 'with the fences');
	is(privileges($session), $usual, 'and the usual privileges');
};

done_testing;
