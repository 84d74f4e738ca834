-- Who may do what.
\t on
\a
SELECT current_user AS superuser \gset
CREATE ROLE regress_zklock_plain LOGIN;
CREATE ROLE regress_zklock_user LOGIN;
CREATE ROLE regress_zklock_monitor LOGIN IN ROLE pg_monitor;
CREATE VIEW extension_function AS
  SELECT p.oid, p.oid::regprocedure::text AS name FROM pg_proc p
  JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
  WHERE extname = 'zklock';

-- by default nobody may do anything
SELECT name, has_function_privilege('regress_zklock_plain', oid, 'EXECUTE') AS plain,
  has_function_privilege('regress_zklock_monitor', oid, 'EXECUTE') AS monitor
FROM extension_function ORDER BY name COLLATE "C";
SELECT view, has_table_privilege('regress_zklock_plain', view, 'SELECT') AS plain,
  has_any_column_privilege('regress_zklock_plain', view, 'SELECT') AS plain_column,
  has_table_privilege('regress_zklock_monitor', view, 'SELECT') AS monitor,
  has_table_privilege('regress_zklock_monitor', view, 'INSERT, UPDATE, DELETE, TRUNCATE') AS monitor_more
FROM unnest(ARRAY['zk_locks', 'zk_session', 'zk_stats', 'zk_elections']) view;

CREATE FUNCTION all_calls() RETURNS TABLE (call text, ends text) LANGUAGE sql AS $$
  SELECT statement, outcome('SELECT ' || statement) FROM unnest(ARRAY[
    'zk_lock(''/regress/privileges'')', 'zk_lock(''{/regress/privileges}''::text[])',
    'zk_xact_lock(''/regress/privileges'')', 'zk_xact_lock(''{/regress/privileges}''::text[])',
    'zk_try_lock(''/regress/privileges'')', 'zk_try_xact_lock(''/regress/privileges'')',
    'zk_lock_shared(''/regress/privileges'')', 'zk_lock_shared(''{/regress/privileges}''::text[])',
    'zk_xact_lock_shared(''/regress/privileges'')',
    'zk_xact_lock_shared(''{/regress/privileges}''::text[])',
    'zk_try_lock_shared(''/regress/privileges'')', 'zk_try_xact_lock_shared(''/regress/privileges'')',
    'zk_fencing_token(''/regress/privileges'') > 0', 'zk_lease_remaining(''/regress/privileges'') > ''0''',
    'zk_unlock(''/regress/privileges'')', 'zk_unlock(''{/regress/privileges}''::text[])',
    'zk_unlock_shared(''/regress/privileges'')',
    'zk_unlock_shared(''{/regress/privileges}''::text[])',
    'zk_lock_tree(''/regress/privileges'', ''/regress'')', 'zk_unlock_tree(''/regress/privileges'', ''/regress'')',
    'zk_lock_tree_shared(''/regress/privileges_shared'', ''/regress'')',
    'zk_unlock_tree_shared(''/regress/privileges_shared'', ''/regress'')',
    'zk_xact_lock_tree(''/regress/privileges'', ''/regress'')',
    'zk_xact_lock_tree_shared(''/regress/privileges_shared'', ''/regress'')',
    'zk_unlock_all() IS NULL',
    'zk_semaphore_acquire(''/regress/privileges'', 1)', 'zk_semaphore_release(''/regress/privileges'')',
    'count(*) >= 0 FROM zk_locks()', 'state FROM zk_session()',
    'count(*) >= 0 FROM zk_locks', 'state FROM zk_session']) statement
$$;

SET ROLE regress_zklock_plain;
SELECT * FROM all_calls();
SET ROLE regress_zklock_monitor;
SELECT * FROM all_calls();
RESET ROLE;

-- with EXECUTE it works, for the paths allowed
GRANT EXECUTE ON FUNCTION zk_lock(text, interval), zk_lock(text[], interval), zk_xact_lock(text, interval),
  zk_xact_lock(text[], interval), zk_try_lock(text), zk_try_xact_lock(text), zk_fencing_token(text), zk_lease_remaining(text),
  zk_lock_shared(text, interval), zk_lock_shared(text[], interval), zk_xact_lock_shared(text, interval),
  zk_xact_lock_shared(text[], interval), zk_try_lock_shared(text), zk_try_xact_lock_shared(text),
  zk_unlock(text), zk_unlock(text[]), zk_unlock_shared(text), zk_unlock_shared(text[]), zk_unlock_all(),
  zk_lock_tree(text, text, interval),
  zk_xact_lock_tree(text, text, interval), zk_xact_lock_tree_shared(text, text, interval),
  zk_lock_tree_shared(text, text, interval), zk_unlock_tree(text, text), zk_unlock_tree_shared(text, text),
  zk_semaphore_acquire(text, integer, interval), zk_semaphore_release(text)
  TO regress_zklock_user;
SET ROLE regress_zklock_user;
SELECT * FROM all_calls();
RESET ROLE;
ALTER ROLE regress_zklock_user SET zklock.allowed_paths = '/regress/mine/*', '/regress/our';
\c - regress_zklock_user
SHOW zklock.allowed_paths;
SELECT zk_lock('/regress/mine/a', '10 s'), zk_lock(ARRAY['/regress/our', '/regress/mine/b'], '10 s');
SELECT zk_fencing_token('/regress/mine/a') > 0, zk_unlock('/regress/our');
SELECT outcome($$ SELECT zk_lock('/regress/privileges') $$);
SELECT outcome($$ SELECT zk_lock(ARRAY['/regress/our', '/regress/privileges']) $$);
SELECT zk_unlock('/regress/our');
SELECT zk_unlock_all();
-- which the user has no way to widen
SELECT outcome($$ SET zklock.allowed_paths = '/*' $$);
SELECT outcome($$ SET LOCAL zklock.allowed_paths = '/*' $$);
SELECT outcome($$ SELECT set_config('zklock.allowed_paths', '/*', false) $$);
SELECT outcome($$ UPDATE pg_settings SET setting = '/*' WHERE name = 'zklock.allowed_paths' $$);
SELECT outcome($$ RESET zklock.allowed_paths $$);
SELECT outcome($$ ALTER ROLE regress_zklock_user SET zklock.allowed_paths = '/*' $$);
SELECT outcome($$ ALTER ROLE regress_zklock_user RESET zklock.allowed_paths $$);
SELECT outcome($$ CREATE FUNCTION pg_temp.f() RETURNS boolean LANGUAGE sql SET zklock.allowed_paths = '/*'
  AS 'SELECT true' $$);
-- these reset what they may
RESET ALL;
DISCARD ALL;
ALTER ROLE regress_zklock_user RESET ALL;
SHOW zklock.allowed_paths;
\c
SHOW zklock.allowed_paths;

-- where the credentials are is nobody's business
\set VERBOSITY sqlstate
SHOW zklock.auth_file;
SELECT current_setting('zklock.auth_file');
\set VERBOSITY default
SELECT name FROM pg_settings WHERE name LIKE 'zklock.%' ORDER BY name COLLATE "C";
\c - regress_zklock_plain
\set VERBOSITY sqlstate
SHOW zklock.auth_file;
\set VERBOSITY default
SELECT count(*) FROM pg_settings WHERE name = 'zklock.auth_file';
-- only these of the settings are a plain user's to change
SELECT count(*) > 5, string_agg(name, ' ' ORDER BY name COLLATE "C") FILTER (WHERE context IN ('user', 'backend'))
FROM pg_settings WHERE name LIKE 'zklock.%';

\c - :superuser
SHOW zklock.auth_file;
DROP VIEW extension_function;
DROP FUNCTION all_calls;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM regress_zklock_user;
DROP ROLE regress_zklock_plain, regress_zklock_user, regress_zklock_monitor;
