-- Semaphores: counting, scopes, arguments.
\t on
\a
CREATE VIEW permits AS
  SELECT path, kind, mode, scope, state, granted, count, node ~ '^_c_[0-9a-f-]{36}-of\d+-lease-\d{10}$' AS node,
    fencing_token, wait_start, granted_at BETWEEN now() - interval '1 min' AND clock_timestamp() AS granted_at,
    blocked_by_pid, blocked_by_node
  FROM zk_locks WHERE pid = pg_backend_pid() AND kind = 'semaphore' AND state <> 'releasing'
  ORDER BY path COLLATE "C";

-- each acquisition takes one more permit, of those that there are
SELECT zk_semaphore_acquire('/regress/sem', 2);
SELECT zk_semaphore_acquire('/regress/sem', 2, '10 s');
SELECT * FROM permits;
SELECT zk_semaphore_acquire('/regress/sem', 2, '0');
SELECT zk_semaphore_acquire('/regress/sem', 2, '10 ms');
SELECT count(*) FROM permits;
SELECT zk_semaphore_release('/regress/sem');
SELECT zk_semaphore_acquire('/regress/sem', 2, '0');
SELECT zk_semaphore_release('/regress/sem'), zk_semaphore_release('/regress/sem');
SELECT count(*) FROM permits;
-- what is not held cannot be released
SELECT zk_semaphore_release('/regress/sem');
SELECT zk_semaphore_release('/regress/sem/locks');

-- semaphores and locks on one path are different things
SELECT zk_semaphore_acquire('/regress/sem', 1, '10 s'), zk_lock('/regress/sem', '10 s');
SELECT zk_unlock('/regress/sem'), zk_unlock('/regress/sem');
SELECT outcome($$ SELECT zk_fencing_token('/regress/sem') $$);
SELECT zk_semaphore_release('/regress/sem');

-- a permit is the session's: it survives an abort and an error
BEGIN;
SELECT zk_semaphore_acquire('/regress/sem', 3, '10 s');
SAVEPOINT s;
SELECT zk_semaphore_acquire('/regress/sem', 3, '10 s');
ROLLBACK TO s;
SELECT 1 / 0;
ROLLBACK;
SELECT count(*) FROM permits;
BEGIN;
SELECT zk_semaphore_release('/regress/sem');
ROLLBACK;
SELECT count(*) FROM permits;
-- zk_unlock_all and DISCARD ALL release it
SELECT zk_unlock_all();
SELECT count(*) FROM permits;
SELECT zk_semaphore_acquire('/regress/sem', 1, '10 s'), zk_semaphore_acquire('/regress/sem2', 1, '10 s');
DISCARD ALL;
SELECT count(*) FROM permits;
SELECT zk_semaphore_acquire('/regress/sem', 1, '0'), zk_semaphore_release('/regress/sem');

-- the end of the session releases it
SELECT zk_semaphore_acquire('/regress/sem', 1, '10 s');
\c
SELECT zk_semaphore_acquire('/regress/sem', 1, '10 s'), zk_semaphore_release('/regress/sem');

-- a permit of the transaction level goes with the transaction, however it ends, and is had again at once
CREATE FUNCTION free_again() RETURNS boolean LANGUAGE sql AS
  $$ SELECT zk_semaphore_acquire('/regress/sem', 1, '30s') AND zk_semaphore_release('/regress/sem') $$;
BEGIN;
SELECT zk_xact_semaphore_acquire('/regress/sem', 1);
SELECT * FROM permits;
-- not by hand
SELECT zk_semaphore_release('/regress/sem'), zk_unlock_all();
SELECT zk_semaphore_acquire('/regress/sem', 1, '0');
COMMIT;
SELECT free_again();
BEGIN;
SELECT zk_xact_semaphore_acquire('/regress/sem', 1);
ROLLBACK;
SELECT free_again();
BEGIN;
SELECT zk_xact_semaphore_acquire('/regress/sem', 1);
SELECT 1 / 0;
ROLLBACK;
SELECT free_again();
BEGIN;
SELECT zk_xact_semaphore_acquire('/regress/sem', 1);
PREPARE TRANSACTION 'zklock_regress';
SELECT free_again();
-- or with a part of it
BEGIN;
SAVEPOINT s;
SELECT zk_xact_semaphore_acquire('/regress/sem', 1);
SAVEPOINT u;
RELEASE u;
SELECT zk_semaphore_acquire('/regress/sem', 1, '0');
ROLLBACK TO s;
SELECT free_again();
SELECT zk_xact_semaphore_acquire('/regress/sem', 1);
RELEASE s;
SELECT zk_semaphore_acquire('/regress/sem', 1, '0');
COMMIT;
SELECT free_again();
-- beside one of the session level, which stays
BEGIN;
SELECT zk_semaphore_acquire('/regress/sem', 2), zk_xact_semaphore_acquire('/regress/sem', 2);
SELECT scope, count(*) FROM permits GROUP BY scope ORDER BY scope;
SELECT zk_semaphore_acquire('/regress/sem', 2, '0');
COMMIT;
SELECT zk_semaphore_acquire('/regress/sem', 2, '30s');
SELECT scope, count(*) FROM permits GROUP BY scope ORDER BY scope;
SELECT zk_semaphore_release('/regress/sem'), zk_semaphore_release('/regress/sem');

-- who thinks there are more permits than others has no more, and all are told
SELECT zk_semaphore_acquire('/regress/sem', 2, '10 s');
SELECT zk_semaphore_acquire('/regress/sem', 5, '10 s');
SELECT zk_semaphore_acquire('/regress/sem', 5, '0');
SELECT zk_semaphore_acquire('/regress/sem', 1, '0');
SELECT zk_unlock_all();
-- who comes first decides for himself
SELECT zk_semaphore_acquire('/regress/sem', 5, '10 s'), zk_semaphore_release('/regress/sem');

-- lock_timeout and statement_timeout end a wait, and leave nothing behind
SELECT zk_semaphore_acquire('/regress/sem', 1, '10 s');
SET lock_timeout = '50ms';
SELECT outcome($$ SELECT zk_semaphore_acquire('/regress/sem', 1) $$);
RESET lock_timeout;
SET statement_timeout = '50ms';
SELECT zk_semaphore_acquire('/regress/sem', 1, '1 h');
RESET statement_timeout;
SELECT count(*) FROM permits;
SELECT zk_semaphore_release('/regress/sem');
SELECT zk_semaphore_acquire('/regress/sem', 1, '10 s'), zk_semaphore_release('/regress/sem');

-- arguments
SELECT outcome($$ SELECT zk_semaphore_acquire('/regress/sem', 0) $$);
SELECT outcome($$ SELECT zk_semaphore_acquire('/regress/sem', -1) $$);
SELECT outcome($$ SELECT zk_semaphore_acquire('/regress/sem', -2147483648, '0') $$);
SELECT outcome($$ SELECT zk_semaphore_acquire('/regress/sem', NULL) $$);
SELECT outcome($$ SELECT zk_semaphore_acquire(NULL, 1) $$);
SELECT outcome($$ SELECT zk_semaphore_release(NULL) $$);
SELECT outcome($$ SELECT zk_semaphore_acquire('regress', 1) $$);
SELECT outcome($$ SELECT zk_semaphore_acquire('/zookeeper/quota', 1) $$);
SELECT outcome($$ SELECT zk_semaphore_release('/regress/') $$);
SELECT outcome($$ SELECT zk_semaphore_acquire('/regress/sem', 1, '-1 s') $$);
SELECT outcome($$ SELECT zk_semaphore_acquire('/regress/sem', 1, '-1 month 1 s') $$);
SELECT zk_semaphore_acquire('/regress/sem', 2147483647, '10 years'), zk_semaphore_release('/regress/sem');
-- room for the nodes below the path is needed
SELECT replace(outcome(format('SELECT zk_semaphore_acquire(%L, 1)', '/regress/' || repeat('x', 1008))), repeat('x', 1008), 'xxx');
SELECT replace(outcome(format('SELECT zk_semaphore_release(%L)', '/regress/' || repeat('x', 1008))), repeat('x', 1008), 'xxx');
SELECT zk_semaphore_acquire('/regress/' || repeat('x', 1007), 1, '10 s'), zk_semaphore_release('/regress/' || repeat('x', 1007));
-- allowed_paths names the semaphore, not its nodes
SET zklock.allowed_paths = '/regress/other';
SELECT outcome($$ SELECT zk_semaphore_acquire('/regress/sem', 1) $$);
SELECT zk_semaphore_acquire('/regress/other', 1, '10 s');
SET zklock.allowed_paths = '';
SELECT zk_semaphore_release('/regress/other');
RESET zklock.allowed_paths;

-- not in a parallel worker
CREATE FUNCTION regress_parallel() RETURNS boolean LANGUAGE sql PARALLEL SAFE AS
  $$ SELECT zk_semaphore_acquire('/regress/sem', 1, '0') $$;
CREATE TABLE regress_many AS SELECT generate_series(1, 10) AS i;
ALTER TABLE regress_many SET (parallel_workers = 2);
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET parallel_leader_participation = off;
SELECT outcome($$ SELECT count(*) FROM regress_many WHERE regress_parallel() $$);
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET parallel_leader_participation;
DROP TABLE regress_many;
DROP FUNCTION regress_parallel;

SELECT count(*) FROM permits;
DROP FUNCTION free_again;
DROP VIEW permits;
