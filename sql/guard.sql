-- Locks that are lost, here by zk_break_lock(): what becomes of the transactions that relied on them, and of trees.
\t on
\a
SELECT current_user AS superuser \gset
CREATE TABLE written (i int);
-- Takes away a lock of this session. Once another one has been got and given back, the server knows of that.
CREATE FUNCTION lose(path text) RETURNS text LANGUAGE sql SECURITY DEFINER AS $$
  SELECT zk_break_lock(path) AND zk_lock_shared('/regress/guard/barrier') AND zk_unlock_shared('/regress/guard/barrier');
  SELECT string_agg(l.path || ' ' || state, ', ') FROM zk_locks l WHERE pid = pg_backend_pid() AND l.path = $1 $$;

-- By default a statement goes on when a lock is lost, and the commit is refused; the lock is not taken again behind its
-- back, only once it was given up.
SHOW zklock.on_lock_loss;
SELECT zk_lock('/regress/guard/a');
BEGIN;
INSERT INTO written VALUES (0);
SELECT lose('/regress/guard/a');
COMMIT;
SELECT outcome($$ SELECT zk_lock('/regress/guard/a') $$);
SELECT zk_unlock_all();
SELECT zk_lock('/regress/guard/a') AND zk_unlock('/regress/guard/a');
SELECT count(*) FROM written;

-- what is given up and taken again before anything is written does not count
SELECT zk_lock('/regress/guard/a');
SELECT lose('/regress/guard/a');
BEGIN;
SELECT zk_unlock('/regress/guard/a');
SELECT zk_lock('/regress/guard/a');
INSERT INTO written VALUES (1);
COMMIT;
-- what was written before a lock was lost and given up is not even prepared, and work goes on
BEGIN;
INSERT INTO written VALUES (2);
SELECT lose('/regress/guard/a');
SELECT zk_unlock('/regress/guard/a');
PREPARE TRANSACTION 'zklock_regress';
INSERT INTO written VALUES (3);
-- a session that does not want to know is not told later either, nor has the next transaction to do with it
BEGIN;
SET LOCAL zklock.commit_guard = off;
INSERT INTO written VALUES (4);
SELECT zk_lock('/regress/guard/a');
SELECT lose('/regress/guard/a');
SELECT zk_unlock('/regress/guard/a');
PREPARE TRANSACTION 'zklock_regress';
INSERT INTO written VALUES (5);
COMMIT PREPARED 'zklock_regress';
-- a permit that is lost and released counts as a lock does
BEGIN;
SELECT zk_semaphore_acquire('/regress/guard/slots', 1);
INSERT INTO written VALUES (6);
SELECT lose('/regress/guard/slots');
SELECT zk_semaphore_release('/regress/guard/slots');
COMMIT;
SELECT string_agg(i::text, ' ' ORDER BY i) FROM written;

-- Who may set the guard. "app" has functions that others call, and "lax" no guard.
CREATE ROLE regress_zklock_app;
CREATE ROLE regress_zklock_lax LOGIN;
ALTER ROLE regress_zklock_lax SET zklock.commit_guard = off;
GRANT CREATE ON SCHEMA public TO regress_zklock_app;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO regress_zklock_app, regress_zklock_lax;
GRANT INSERT ON written TO regress_zklock_app, regress_zklock_lax;
SHOW zklock.commit_guard;
-- what a superuser has set stays, and cannot be set by another role, unless that was given the privilege
SET zklock.commit_guard = off;
SET ROLE regress_zklock_app;
SHOW zklock.commit_guard;
SET zklock.commit_guard = off;
RESET ROLE;
RESET zklock.commit_guard;
GRANT SET ON PARAMETER zklock.commit_guard TO regress_zklock_app;
SET ROLE regress_zklock_app;
SET zklock.commit_guard = off;
RESET zklock.commit_guard;

-- a payment under a lock of the transaction, or of the session
CREATE FUNCTION pay(in_session boolean) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF in_session THEN
    PERFORM zk_lock('/regress/guard/pay');
  ELSE
    PERFORM zk_xact_lock('/regress/guard/pay');
  END IF;
  INSERT INTO written VALUES (7);
  RETURN 'paid';
END
$$;
-- the same, with a guard of its own while it takes the lock
CREATE FUNCTION pay_guarded(in_session boolean) RETURNS text LANGUAGE sql SECURITY DEFINER
  SET zklock.commit_guard = lease AS 'SELECT pay(in_session)';
RESET ROLE;
-- lent to all
CREATE FUNCTION relax() RETURNS text LANGUAGE sql SECURITY DEFINER
  AS $$ SELECT set_config('zklock.commit_guard', 'off', false) $$;
CREATE FUNCTION in_worker() RETURNS text LANGUAGE plpgsql PARALLEL SAFE AS $$
BEGIN
  RETURN current_setting('zklock.commit_guard') || (SELECT CASE WHEN leader_pid IS NOT NULL THEN ' in a worker' ELSE '' END
    FROM pg_stat_activity WHERE pid = pg_backend_pid());
END
$$;

-- A lock keeps the guard that it was taken under.
TRUNCATE written;
\set VERBOSITY sqlstate
-- set off after the lock was taken, it counts as before
BEGIN;
SELECT pay(false);
SET zklock.commit_guard = off;
SELECT lose('/regress/guard/pay');
COMMIT;
-- then the transaction can be repeated
SELECT zk_try_lock('/regress/guard/pay');
DISCARD ALL;
-- at session level as well
BEGIN;
SELECT pay(true);
SET zklock.commit_guard = off;
SELECT lose('/regress/guard/pay');
COMMIT;
DISCARD ALL;
-- so does the guard of a lock that is released meanwhile
BEGIN;
SELECT pay(true);
SELECT lose('/regress/guard/pay');
SET zklock.commit_guard = off;
SELECT zk_unlock('/regress/guard/pay');
COMMIT;
DISCARD ALL;
-- of several acquisitions the strictest counts
SET zklock.commit_guard = off;
BEGIN;
SELECT pay(false);
SET LOCAL zklock.commit_guard = lease;
SELECT pay(false);
SET LOCAL zklock.commit_guard = off;
SELECT pay(false);
SELECT lose('/regress/guard/pay');
COMMIT;
DISCARD ALL;
-- a lock that was taken under "off" is not asked for, unless the setting is stricter by then
SET zklock.commit_guard = off;
BEGIN;
SELECT pay(false);
SELECT lose('/regress/guard/pay');
SET zklock.commit_guard = lease;
COMMIT;
SET zklock.commit_guard = off;
BEGIN;
SELECT pay(false);
SELECT lose('/regress/guard/pay');
COMMIT;
SELECT count(*) FROM written;
DISCARD ALL;
-- who has only read relies on no lock of the session
BEGIN;
SELECT zk_lock('/regress/guard/pay');
SELECT lose('/regress/guard/pay');
COMMIT;
DISCARD ALL;

-- a function protects itself from callers without a guard by a setting of its own
\c - regress_zklock_lax
SHOW zklock.commit_guard;
BEGIN;
SELECT pay_guarded(false);
SHOW zklock.commit_guard;
SELECT lose('/regress/guard/pay');
COMMIT;
DISCARD ALL;
BEGIN;
SELECT pay_guarded(true);
SELECT lose('/regress/guard/pay');
COMMIT;
DISCARD ALL;

-- a superuser can lend the privilege in a function, and parallel workers have what the leader has
\c - :superuser
ALTER ROLE regress_zklock_lax RESET ALL;
\c - regress_zklock_lax
SHOW zklock.commit_guard;
SELECT relax();
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
SELECT in_worker();
\c - :superuser
SELECT count(*) FROM written;
\set VERBOSITY default

-- A lost lock of a tree is undone with its branch, and no other.
CREATE VIEW held_by_mode AS
  SELECT path, mode, count FROM zk_locks WHERE pid = pg_backend_pid() AND state = 'held' ORDER BY path COLLATE "C", mode;
SELECT zk_lock_tree('/regress/guard/eu/berlin', '/regress/guard'), zk_lock_tree('/regress/guard/eu/paris', '/regress/guard');
SELECT lose('/regress/guard/eu/berlin');
SELECT zk_unlock_tree('/regress/guard/eu/berlin', '/regress/guard');
SELECT * FROM held_by_mode;
-- so it can be had again
SELECT zk_lock_tree('/regress/guard/eu/berlin', '/regress/guard');
-- still all or nothing: a lost lock that has been undone by itself is missing in its branch
SELECT lose('/regress/guard/eu/berlin');
SELECT zk_unlock('/regress/guard/eu/berlin');
SELECT zk_unlock_tree('/regress/guard/eu/berlin', '/regress/guard');
SELECT * FROM held_by_mode;
SELECT zk_unlock_all();

DROP VIEW held_by_mode;
DROP FUNCTION relax(), in_worker(), pay_guarded(boolean), pay(boolean), lose(text);
DROP TABLE written;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM regress_zklock_app, regress_zklock_lax;
REVOKE ALL ON SCHEMA public FROM regress_zklock_app;
REVOKE ALL ON PARAMETER zklock.commit_guard FROM regress_zklock_app;
DROP ROLE regress_zklock_app, regress_zklock_lax;
