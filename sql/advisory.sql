-- PostgreSQL's advisory lock functions, over all servers.
\t on
\a
CREATE EXTENSION zklock_advisory;

-- for each of PostgreSQL's functions one of the same name and properties, and no other
CREATE VIEW advisory_function AS
  SELECT pronamespace::regnamespace AS schema, proname, pg_get_function_arguments(oid) AS arguments,
    ROW(pg_get_function_result(oid), proargnames, pronargdefaults, prokind, provolatile, proparallel, proisstrict,
      proleakproof, prosecdef, proretset, procost, prorows, proconfig)::text AS properties
  FROM pg_proc
  WHERE pronamespace = 'zk_advisory'::regnamespace OR pronamespace = 'pg_catalog'::regnamespace AND proname LIKE '%advisory%';
SELECT proname, arguments, string_agg(schema || ' ' || properties, E'\n' ORDER BY schema) FROM advisory_function
GROUP BY proname, arguments HAVING count(*) <> 2 OR min(properties) <> max(properties);
SELECT count(*) >= 21 FROM advisory_function WHERE schema = 'zk_advisory'::regnamespace;
-- and the view has PostgreSQL's columns
SELECT attname, array_agg(format_type(atttypid, atttypmod)) FROM pg_attribute
WHERE attrelid IN ('pg_catalog.pg_locks'::regclass, 'zk_advisory.pg_locks'::regclass)
GROUP BY attnum, attname, atttypid, atttypmod HAVING count(*) <> 2;
DROP VIEW advisory_function;

-- the order of schemas decides which are called
CREATE FUNCTION advisory_functions() RETURNS regnamespace LANGUAGE sql AS
  $$ SELECT pronamespace::regnamespace FROM pg_proc WHERE oid = 'pg_advisory_lock(bigint)'::regprocedure $$;
SELECT advisory_functions();
SET search_path = public, zk_advisory, pg_catalog;
SELECT advisory_functions();

-- What follows, up to the next line of dashes, is the same with PostgreSQL's own: test/t/sql/advisory.pl compares.
-- -----------------------------------------------------------------------
PREPARE advisory AS
  SELECT classid, objid, objsubid, mode, granted, fastpath FROM pg_locks
  WHERE locktype = 'advisory' AND pid = pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  ORDER BY classid, objid, objsubid, mode;

-- transaction-level locks: no unlock gives them up, the end of the transaction does
BEGIN;
SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock_shared(2), pg_advisory_xact_lock(1, 1), pg_advisory_xact_lock_shared(2, 2);
EXECUTE advisory;
SELECT pg_advisory_unlock_all();
EXECUTE advisory;
SELECT pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2, 2);
EXECUTE advisory;
COMMIT;
EXECUTE advisory;

-- both levels, the transaction's first: its end leaves the session's
BEGIN;
SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock_shared(2), pg_advisory_xact_lock(1, 1), pg_advisory_xact_lock_shared(2, 2);
SELECT pg_advisory_lock(1), pg_advisory_lock_shared(2), pg_advisory_lock(1, 1), pg_advisory_lock_shared(2, 2);
EXECUTE advisory;
ROLLBACK;
EXECUTE advisory;
SELECT pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2, 2);
EXECUTE advisory;
SELECT pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2, 2);

-- the session's first: once it is given up, the transaction's is left
BEGIN;
SELECT pg_advisory_lock(1), pg_advisory_lock_shared(2), pg_advisory_lock(1, 1), pg_advisory_lock_shared(2, 2);
SELECT pg_try_advisory_xact_lock(1), pg_try_advisory_xact_lock_shared(2), pg_try_advisory_xact_lock(1, 1),
  pg_try_advisory_xact_lock_shared(2, 2);
SELECT pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2, 2);
EXECUTE advisory;
SELECT pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2, 2);
COMMIT;
EXECUTE advisory;

-- acquisitions count, whatever the call; an unlock undoes one
SELECT pg_advisory_lock(1), pg_try_advisory_lock(1), pg_advisory_lock_shared(2), pg_try_advisory_lock_shared(2),
  pg_advisory_lock(1, 1), pg_try_advisory_lock(1, 1), pg_advisory_lock_shared(2, 2), pg_try_advisory_lock_shared(2, 2);
EXECUTE advisory;
SELECT pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2, 2);
EXECUTE advisory;
SELECT pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2, 2);
EXECUTE advisory;
SELECT pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2, 2);

-- or all of them at once
SELECT pg_advisory_lock(1), pg_advisory_lock(1), pg_advisory_lock_shared(2), pg_advisory_lock(1, 1), pg_advisory_lock(1, 1),
  pg_advisory_lock_shared(2, 2), pg_advisory_lock_shared(2, 2);
EXECUTE advisory;
SELECT pg_advisory_unlock_all();
EXECUTE advisory;
SELECT pg_advisory_unlock_all();

-- both modes of one key
SELECT pg_advisory_lock(1), pg_advisory_lock_shared(1);
EXECUTE advisory;
SELECT pg_advisory_unlock(1), pg_advisory_unlock(1);
EXECUTE advisory;
SELECT pg_advisory_lock(1), pg_advisory_unlock_shared(1), pg_advisory_unlock_shared(1);
EXECUTE advisory;
SELECT pg_advisory_unlock_all();

-- a rollback to a savepoint gives up the transaction's alone
BEGIN;
SELECT pg_advisory_xact_lock(1);
SAVEPOINT s;
SELECT pg_advisory_xact_lock(2), pg_advisory_lock(3), pg_advisory_xact_lock(1);
EXECUTE advisory;
ROLLBACK TO s;
EXECUTE advisory;
COMMIT;
EXECUTE advisory;
SELECT pg_advisory_unlock(3);

-- keys of all sizes; of two numbers, none is one's
SELECT count(pg_advisory_lock(key)) FROM unnest(ARRAY[0, 1, -1, 1234567890, -1234567890, 4294967296, -4294967297, 7241865325823964,
  9223372036854775807, -9223372036854775808]) key;
SELECT count(pg_advisory_lock(key1, key2)) FROM (VALUES (0, 0), (0, 1), (1, 0), (-1, -2147483648), (2147483647, -1)) key (key1, key2);
EXECUTE advisory;
SELECT pg_advisory_unlock(-1, -2147483648), pg_advisory_unlock(9223372036854775807), pg_advisory_unlock(0, 2);
EXECUTE advisory;
SELECT pg_advisory_unlock_all();
-- what is null is no key
SELECT pg_advisory_lock(NULL), pg_try_advisory_lock(1, NULL), pg_advisory_unlock(NULL, 1);
EXECUTE advisory;

-- an error leaves what the session has, DISCARD ALL does not
SELECT pg_advisory_lock(1), 1 / (random() * 0)::int;
EXECUTE advisory;
DISCARD ALL;
SELECT count(*) FROM zk_advisory.pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
-- -----------------------------------------------------------------------

-- where the locks are
SET search_path = public, zk_advisory, pg_catalog;
BEGIN;
SELECT pg_advisory_lock(42), pg_advisory_lock_shared(-1), pg_advisory_xact_lock(1, 2);
SELECT replace(path, current_database(), 'DATABASE'), mode, scope, count FROM zk_locks WHERE pid = pg_backend_pid() ORDER BY path COLLATE "C";
COMMIT;
SELECT pg_advisory_unlock_all();
SET zklock.advisory_path = '/regress/shards';
SELECT pg_advisory_lock(42);
SELECT * FROM held;
SELECT classid, objid, objsubid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
-- the lock is like any other there
SELECT zk_unlock('/regress/shards/42');
-- a value that is no path is an error at each lock
SELECT outcome(format('SELECT set_config(''zklock.advisory_path'', %L, false), pg_advisory_lock(42)', value))
FROM unnest(ARRAY['regress', '/regress/', '/', '/zookeeper', '/' || repeat('x', 1022)]) value;
RESET zklock.advisory_path;

-- a reset does not lose the way to the function that releases all, which a pool calls next
SELECT pg_advisory_lock(42);
SELECT outcome(reset) FROM unnest(ARRAY['RESET ALL', 'RESET search_path', 'SET search_path TO DEFAULT']) reset;
SHOW search_path;
SELECT count(*) FROM held;
SELECT pg_advisory_unlock_all();
RESET ALL;
SHOW search_path;
-- neither had it been found before, nor does it matter for a transaction's locks, or others
SELECT zk_advisory.pg_advisory_lock(42);
RESET ALL;
SELECT zk_advisory.pg_advisory_unlock_all();
SET search_path = public, zk_advisory, pg_catalog;
BEGIN;
SELECT pg_advisory_xact_lock(42), zk_lock('/regress/reset');
RESET ALL;
COMMIT;
SELECT zk_unlock_all();
SET search_path = public, zk_advisory, pg_catalog;

-- PostgreSQL's function that releases all leaves what it has not taken
SELECT '/advisory/' || current_database() AS advisory_path \gset
SELECT zk_lock('/regress/advisory'), zk_lock(:'advisory_path' || '/name'), zk_lock(:'advisory_path' || '/1/2'),
  zk_lock(:'advisory_path' || '1/2'), zk_semaphore_acquire(:'advisory_path' || '/7', 1), pg_advisory_lock(7) IS NOT NULL;
SELECT pg_advisory_unlock_all();
SELECT replace(path, current_database(), 'DATABASE'), kind FROM zk_locks WHERE pid = pg_backend_pid() AND state = 'held' ORDER BY path COLLATE "C";
SELECT zk_unlock_all();

-- paths that no key has are not in the view
SELECT count(zk_lock(:'advisory_path' || '/' || name)) FROM unnest(ARRAY['007', '-0', '+1', '9223372036854775808',
  '99999999999999999999', '2147483648,1', '1,-2147483649', '1,99999999999', '1,2,3', '1,', ',1', '']) name WHERE name <> '';
SELECT count(*) FROM zk_locks WHERE pid = pg_backend_pid();
SELECT classid, objid, objsubid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT zk_unlock_all();

-- by default nobody may do anything
CREATE ROLE regress_zklock_app LOGIN;
SELECT has_schema_privilege('regress_zklock_app', 'zk_advisory', 'USAGE') AS usage,
  has_table_privilege('regress_zklock_app', 'zk_advisory.pg_locks', 'SELECT') AS locks,
  (SELECT count(*) FROM pg_proc WHERE pronamespace = 'zk_advisory'::regnamespace
    AND has_function_privilege('regress_zklock_app', oid, 'EXECUTE')) AS functions;
-- a role that may find the functions and not call them is refused
GRANT USAGE ON SCHEMA zk_advisory TO regress_zklock_app;
SET ROLE regress_zklock_app;
SELECT outcome('SELECT pg_advisory_lock(42)');
RESET ROLE;
-- the rules of zklock's locks apply: allowed paths, and what may be held at session level
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA zk_advisory TO regress_zklock_app;
GRANT SELECT ON zk_advisory.pg_locks TO regress_zklock_app;
ALTER ROLE regress_zklock_app SET search_path = public, zk_advisory, pg_catalog;
ALTER ROLE regress_zklock_app SET zklock.allowed_paths = '/regress/shards/42';
ALTER ROLE regress_zklock_app SET zklock.session_locks = off;
ALTER ROLE regress_zklock_app SET zklock.advisory_path = '/regress/shards';
SELECT current_user AS superuser \gset
\c - regress_zklock_app
SELECT outcome('SELECT pg_advisory_xact_lock(42) IS NOT NULL');
SELECT outcome('SELECT pg_advisory_xact_lock(43)');
SELECT outcome('SELECT ' || name || '(42)') FROM unnest(ARRAY['pg_advisory_lock', 'pg_advisory_lock_shared', 'pg_try_advisory_lock',
  'pg_try_advisory_lock_shared']) name;
SELECT outcome('SET zklock.advisory_path = ''/regress''');
\c - :superuser
CREATE ROLE regress_zklock_pool LOGIN NOINHERIT IN ROLE regress_zklock_app;
\c - regress_zklock_pool
SET search_path = public, zk_advisory, pg_catalog;
SET ROLE regress_zklock_app;
SELECT pg_advisory_lock(42);
SELECT outcome('RESET ROLE');
SELECT pg_advisory_unlock_all();
RESET ROLE;
\c - :superuser
DROP OWNED BY regress_zklock_app;
DROP ROLE regress_zklock_app, regress_zklock_pool;

-- what takes PostgreSQL's own locks all the same
CREATE SCHEMA regress_escapes;
SET search_path = regress_escapes;
CREATE FUNCTION plain() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); END $$;
CREATE FUNCTION led() RETURNS void LANGUAGE plpgsql SET search_path = public, zk_advisory, pg_catalog
  AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); END $$;
CREATE FUNCTION emptied() RETURNS void LANGUAGE plpgsql SET search_path = ''
  AS $$ BEGIN PERFORM pg_try_advisory_lock(1); END $$;
CREATE FUNCTION behind() RETURNS void LANGUAGE sql SET search_path = pg_catalog, zk_advisory
  AS 'SELECT pg_advisory_unlock_all()';
CREATE PROCEDURE qualified() LANGUAGE plpgsql AS $$ BEGIN PERFORM "pg_catalog" . pg_advisory_xact_lock(1); END $$;
CREATE FUNCTION parsed() RETURNS void LANGUAGE sql BEGIN ATOMIC SELECT pg_advisory_xact_lock(1); END;
CREATE TABLE t (a int DEFAULT pg_try_advisory_lock(1)::int CHECK (pg_advisory_unlock(1)), b int);
CREATE VIEW v AS SELECT pg_try_advisory_lock(1);
CREATE RULE r AS ON UPDATE TO t DO ALSO SELECT pg_advisory_xact_lock(1);
CREATE POLICY p ON t USING (pg_try_advisory_xact_lock(1));
CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW WHEN (pg_try_advisory_lock(new.b)) EXECUTE FUNCTION suppress_redundant_updates_trigger();
SET search_path = regress_escapes, zk_advisory, pg_catalog;
CREATE VIEW here AS SELECT pg_try_advisory_lock(1);
RESET search_path;
CREATE ROLE regress_zklock_led LOGIN;
CREATE ROLE regress_zklock_led_here LOGIN;
CREATE ROLE regress_zklock_not_led LOGIN;
CREATE ROLE regress_zklock_not_let_in LOGIN;
CREATE ROLE regress_zklock_nologin;
ALTER ROLE regress_zklock_led SET search_path = '$user', zk_advisory, pg_catalog;
ALTER ROLE regress_zklock_led_here SET search_path = public;
\set ECHO none
SELECT format('ALTER ROLE regress_zklock_led_here IN DATABASE %I SET search_path = zk_advisory, pg_catalog', current_database()) \gexec
\set ECHO all
ALTER ROLE regress_zklock_not_let_in SET search_path = zk_advisory, pg_catalog;
GRANT USAGE ON SCHEMA zk_advisory TO regress_zklock_led, regress_zklock_led_here;
SELECT * FROM zk_advisory.escapes WHERE object LIKE '%regress_%' ORDER BY kind, object COLLATE "C";
DROP OWNED BY regress_zklock_led, regress_zklock_led_here;
DROP ROLE regress_zklock_led, regress_zklock_led_here, regress_zklock_not_led, regress_zklock_not_let_in, regress_zklock_nologin;
SET client_min_messages = warning;
DROP SCHEMA regress_escapes CASCADE;
RESET client_min_messages;

-- a comment on everything the extension has, and each thing in its schema
SELECT count(*) FROM pg_depend d WHERE deptype = 'e' AND classid <> 'pg_type'::regclass AND refclassid = 'pg_extension'::regclass
  AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock_advisory')
  AND coalesce(obj_description(objid, (SELECT relname FROM pg_class c WHERE c.oid = d.classid)), '') = '';
SELECT DISTINCT (pg_identify_object(classid, objid, objsubid)).schema FROM pg_depend WHERE deptype = 'e'
  AND refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock_advisory')
  AND classid NOT IN ('pg_type'::regclass, 'pg_namespace'::regclass);
-- PostgreSQL's own functions are as they were
SELECT count(*) FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname LIKE '%advisory%'
  AND (proacl IS NOT NULL OR obj_description(oid) LIKE '%servers%');

-- it stays in its schema, which goes with it alone, and does not come to one that is somebody's already
DROP FUNCTION advisory_functions();
SELECT outcome('ALTER EXTENSION zklock_advisory SET SCHEMA public');
SELECT outcome('DROP SCHEMA zk_advisory CASCADE');
DROP EXTENSION zklock_advisory;
SELECT count(*) FROM pg_proc WHERE probin LIKE '%/zklock' AND prosrc LIKE '%advisory%';
SELECT count(*) FROM pg_namespace WHERE nspname = 'zk_advisory';
SELECT outcome('CREATE EXTENSION zklock_advisory SCHEMA public');
CREATE SCHEMA zk_advisory;
SELECT outcome('CREATE EXTENSION zklock_advisory');
DROP SCHEMA zk_advisory;
