-- Locks that no session holds. What becomes of them across sessions and restarts is in test/t/locks/persistent.pl.
\t on
\a

-- whoever has the token unlocks it, once
SELECT zk_lock_persistent('/regress/persistent/one') AS token \gset
SELECT zk_lock_persistent('/regress/persistent/one') IS NULL, zk_lock_persistent_shared('/regress/persistent/one') IS NULL,
  zk_try_lock('/regress/persistent/one');
SELECT granted, persistent, mode, fencing_token = :token FROM zk_contenders('/regress/persistent/one');
SELECT count(*) FROM zk_locks WHERE path = '/regress/persistent/one';
SELECT zk_unlock_persistent('/regress/persistent/one', :token);
SET client_min_messages = error; -- the warning has the token
SELECT zk_unlock_persistent('/regress/persistent/one', :token);
RESET client_min_messages;

-- a rollback undoes neither
BEGIN;
SELECT zk_lock_persistent_shared('/regress/persistent/two') AS token \gset
ROLLBACK;
SELECT granted, persistent, mode FROM zk_contenders('/regress/persistent/two');
BEGIN;
SELECT zk_unlock_persistent('/regress/persistent/two', :token);
ROLLBACK;
SELECT count(*) FROM zk_contenders('/regress/persistent/two');

-- a session's own lock is in the way
SELECT zk_lock('/regress/persistent/two');
SELECT zk_lock_persistent('/regress/persistent/two') IS NULL;
SELECT zk_unlock('/regress/persistent/two');

-- zk_break_lock() frees it
SELECT zk_lock_persistent('/regress/persistent/two') IS NOT NULL;
SET client_min_messages = warning; -- the notice has the node's name
SELECT zk_break_lock('/regress/persistent/two');
RESET client_min_messages;

-- other uses of the path
SELECT zk_claim('/regress/persistent/claim', clock_timestamp());
SELECT outcome($$ SELECT zk_lock_persistent('/regress/persistent/claim') $$);
SELECT zk_queue_offer('/regress/persistent/queue', 'x') IS NOT NULL;
SELECT outcome($$ SELECT zk_lock_persistent_shared('/regress/persistent/queue') $$);
SELECT convert_from(zk_queue_remove('/regress/persistent/queue'), 'UTF8');

-- no level is created that is not to be
SET zklock.parent_nodes = existing;
SELECT outcome($$ SELECT zk_lock_persistent('/regress/persistent/missing') $$);
RESET zklock.parent_nodes;
SELECT outcome($$ SELECT zk_lock_persistent('/regress/persistent' || repeat('/x', 20)) $$);

-- arguments
SELECT outcome($$ SELECT zk_lock_persistent(NULL) $$);
SELECT outcome($$ SELECT zk_lock_persistent_shared('regress') $$);
SELECT outcome($$ SELECT zk_unlock_persistent('/regress/persistent/one', NULL) $$);

-- nobody may by default, and a role only below its paths
CREATE ROLE regress_zklock_batch;
SET ROLE regress_zklock_batch;
SELECT outcome($$ SELECT zk_lock_persistent('/regress/persistent/one') $$);
RESET ROLE;
GRANT EXECUTE ON FUNCTION zk_lock_persistent, zk_unlock_persistent TO regress_zklock_batch;
SET zklock.allowed_paths = '/regress/persistent/batch/*';
SET ROLE regress_zklock_batch;
SELECT outcome($$ SELECT zk_lock_persistent('/regress/persistent/one') $$);
SELECT outcome($$ SELECT zk_unlock_persistent('/regress/persistent/one', 1) $$);
SELECT zk_unlock_persistent('/regress/persistent/batch/job', zk_lock_persistent('/regress/persistent/batch/job'));
RESET ROLE;
RESET zklock.allowed_paths;
DROP OWNED BY regress_zklock_batch;
DROP ROLE regress_zklock_batch;
