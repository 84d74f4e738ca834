-- The views, and what the catalogs say about the extension.
\t on
\a
SELECT attrelid::regclass, attnum, attname, format_type(atttypid, atttypmod)
FROM pg_attribute WHERE attrelid IN ('zk_locks'::regclass, 'zk_session'::regclass, 'zk_stats'::regclass) AND attnum > 0
ORDER BY 1, 2;

-- one row per path and scope
BEGIN;
SELECT zk_lock('/regress/views_a'), zk_lock('/regress/views_a'), zk_xact_lock('/regress/views_a'),
  zk_xact_lock('/regress/views_b');
\t off
SELECT pid = pg_backend_pid() AS own_pid, datname = current_database() AS own_database, path, kind, mode, scope, state,
  granted, count
FROM zk_locks WHERE pid = pg_backend_pid() ORDER BY path, scope;
SELECT path, scope, node ~ '^_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lock-\d{10}$' AS node,
  fencing_token = zk_fencing_token(path) AS own_token, wait_start, granted_at BETWEEN now() AND clock_timestamp() AS granted_at,
  blocked_by_pid, blocked_by_node
FROM zk_locks WHERE pid = pg_backend_pid() ORDER BY path, scope;
-- both scopes of a path are one lock
SELECT count(DISTINCT (node, fencing_token, granted_at)) FROM zk_locks WHERE path = '/regress/views_a';
\t on
COMMIT;
SELECT * FROM held;
SELECT zk_unlock_all();
-- zk_unlock returns when ZooKeeper has confirmed: nothing is left then, not even a row that says "releasing"
SELECT count(*) FROM zk_locks WHERE path = '/regress/views_a';

-- the session, always one row
\t off
SELECT state, server ~ '^127\.0\.0\.1:\d+$' AS server, session_id ~ '^0x[0-9a-f]+$' AS session_id,
  negotiated_timeout, lease_remaining > '0' AND lease_remaining < negotiated_timeout AS lease_remaining, connected_since < clock_timestamp() AS connected_since,
  (SELECT backend_type LIKE '%zklock%' FROM pg_stat_activity a WHERE a.pid = worker_pid) AS worker_pid,
  reconnects, expirations
FROM zk_session;
\t on

-- its worker is a process like others, that can be seen to wait, and has no query to be cancelled
SELECT worker_pid AS worker FROM zk_session \gset
SELECT backend_type, pid = :worker AS worker FROM pg_stat_activity WHERE backend_type LIKE '%zklock%';
DO $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'zklock worker' AND wait_event_type = 'Extension') LOOP
    PERFORM pg_stat_clear_snapshot();
  END LOOP;
END
$$;
SELECT zk_lock('/regress/views_a');
SELECT pg_cancel_backend(:worker);
SELECT zk_lock('/regress/views_b');
SELECT zk_unlock('/regress/views_a'), zk_unlock('/regress/views_b');
SELECT worker_pid = :worker AS same_worker FROM zk_session;

-- what has been locked leaves no trace in the session's memory, once the session has looked what is released
CREATE PROCEDURE come_and_go() LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. 100 LOOP PERFORM zk_xact_lock('/regress/views_' || i); COMMIT; END LOOP;
  WHILE EXISTS (SELECT FROM zk_locks WHERE state = 'releasing') LOOP PERFORM pg_sleep(0.01); END LOOP;
  PERFORM zk_lock('/regress/views_a') AND zk_unlock('/regress/views_a');
END
$$;
CREATE VIEW memory AS SELECT sum(used_bytes) AS used FROM pg_backend_memory_contexts WHERE name = 'zklock locks';
CALL come_and_go();
SELECT used FROM memory \gset
CALL come_and_go();
SELECT used - :used AS more FROM memory;
DROP PROCEDURE come_and_go();
DROP VIEW memory;

-- zk_contenders() looks at any path, also at one that may not be locked
SET zklock.allowed_paths = '/nothing';
SELECT count(*) FROM zk_contenders('/regress/not/there');
RESET zklock.allowed_paths;
SELECT outcome($$ SELECT zk_contenders(NULL) $$);
SELECT outcome($$ SELECT zk_contenders('relative') $$);
-- and below any, or all
SET zklock.allowed_paths = '/nothing';
SELECT count(*) FROM zk_contenders('/regress/not/there/*');
RESET zklock.allowed_paths;
SELECT outcome($$ SELECT zk_contenders('relative/*') $$);
SELECT outcome($$ SELECT zk_contenders('//*') $$);
SELECT zk_lock('/regress/below/a'), zk_lock('/regress/below/b/c');
SELECT path, kind, granted, granted_at = (SELECT granted_at FROM zk_locks l WHERE l.path = c.path) AS granted_at, persistent, kept
FROM zk_contenders('/regress/below/*') c ORDER BY path;
SELECT count(*) > 1 FROM zk_contenders('/*');
SELECT zk_unlock('/regress/below/a'), zk_unlock('/regress/below/b/c');

-- a comment on everything the extension has, and on all columns of its views; the row
-- types of tables and views are members as well in newer releases of PostgreSQL
SELECT count(*) > 10 AS members,
  count(*) FILTER (WHERE coalesce(obj_description(objid, (SELECT relname FROM pg_class c WHERE c.oid = d.classid)), '') = '')
    AS without_comment
FROM pg_depend d
WHERE deptype = 'e' AND classid <> 'pg_type'::regclass AND refclassid = 'pg_extension'::regclass
  AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock');
SELECT attrelid::regclass, attname AS without_comment FROM pg_attribute
WHERE attrelid IN (SELECT objid FROM pg_depend d WHERE deptype = 'e' AND classid = 'pg_class'::regclass
    AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock'))
  AND attnum > 0 AND col_description(attrelid, attnum) IS NULL;
SELECT obj_description(oid, 'pg_extension') <> '' FROM pg_extension WHERE extname = 'zklock';

-- what the planner must know
SELECT p.oid::regprocedure, provolatile, proparallel, proisstrict, prosecdef
FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE extname = 'zklock' ORDER BY p.oid::regprocedure::text COLLATE "C";

-- A parallel query runs the functions in the leader, where the locks belong.
DO $$
BEGIN
  -- the setting's name since PostgreSQL 16, and before
  IF current_setting('server_version_num')::int >= 160000 THEN
    SET debug_parallel_query = on;
  ELSE
    SET force_parallel_mode = on;
  END IF;
END
$$;
SET max_parallel_workers_per_gather = 2;
CREATE FUNCTION in_worker() RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS
  $$ BEGIN RETURN (SELECT leader_pid IS NOT NULL FROM pg_stat_activity WHERE pid = pg_backend_pid()); END $$;
-- this is how we know that there is a worker
SELECT in_worker();
SELECT zk_lock('/regress/views_a');
SELECT n, zk_try_lock('/regress/views_a') FROM generate_series(1, 2) n;
SELECT zk_fencing_token('/regress/views_a') > 0;
SELECT path, count FROM held;
SELECT state FROM zk_session;
SELECT zk_unlock('/regress/views_a');
-- A function that is declared safe but is not brings them to a worker: they refuse,
-- since the worker has no locks of its own and cannot get at the leader's.
CREATE FUNCTION unsafe(statement text) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS
  $$ DECLARE result boolean; BEGIN EXECUTE 'SELECT ' || statement INTO result; RETURN result; END $$;
\set SHOW_CONTEXT never
SELECT unsafe('in_worker()');
SELECT zk_lock('/regress/views_b');
\set VERBOSITY sqlstate
SELECT unsafe($$ zk_lock('/regress/views_a') $$);
SELECT unsafe($$ zk_lock('{/regress/views_a}'::text[]) $$);
SELECT unsafe($$ zk_xact_lock('/regress/views_a') $$);
SELECT unsafe($$ zk_xact_lock('{/regress/views_a}'::text[]) $$);
SELECT unsafe($$ zk_try_lock('/regress/views_a') $$);
SELECT unsafe($$ zk_try_xact_lock('/regress/views_a') $$);
SELECT unsafe($$ zk_fencing_token('/regress/views_b') > 0 $$);
SELECT unsafe($$ zk_unlock('/regress/views_b') $$);
SELECT unsafe($$ zk_unlock('{/regress/views_b}'::text[]) $$);
SELECT unsafe($$ zk_lock_tree('/regress/views_a', '/regress') $$);
SELECT unsafe($$ zk_lock_tree_shared('/regress/views_a', '/regress') $$);
SELECT unsafe($$ zk_xact_lock_tree('/regress/views_a', '/regress') $$);
SELECT unsafe($$ zk_xact_lock_tree_shared('/regress/views_a', '/regress') $$);
SELECT unsafe($$ zk_unlock_tree('/regress/views_b', '/regress') $$);
SELECT unsafe($$ zk_unlock_tree_shared('/regress/views_b', '/regress') $$);
SELECT unsafe($$ zk_unlock_all() IS NULL $$);
\set VERBOSITY default
SELECT unsafe($$ zk_lock('/regress/views_a') $$);
SELECT unsafe($$ zk_fence('/regress/views_a', 1) IS NULL $$);
-- nothing has come of all that
SELECT path, count FROM held;
SELECT zk_unlock('/regress/views_b');
\c
DROP FUNCTION in_worker(), unsafe(text);
