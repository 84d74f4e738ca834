-- Locks in a tree: the path in the mode asked for, those above it shared.
\t on
\a
CREATE VIEW held_modes AS
  SELECT path, mode, count FROM zk_locks
  WHERE pid = pg_backend_pid() AND state = 'held'
  ORDER BY path COLLATE "C", mode;

SELECT zk_lock_tree('/regress/tree/db/t/p', '/regress/tree');
SELECT * FROM held_modes;
-- another part of the same whole, and the same once more
SELECT zk_lock_tree_shared('/regress/tree/db/u', '/regress/tree', '30s');
SELECT zk_lock_tree('/regress/tree/db/t/p', '/regress/tree', '0');
SELECT * FROM held_modes;
SELECT zk_unlock_tree('/regress/tree/db/t/p', '/regress/tree');
SELECT * FROM held_modes;
SELECT zk_unlock_tree_shared('/regress/tree/db/u', '/regress/tree');
SELECT zk_unlock_tree('/regress/tree/db/t/p', '/regress/tree');
SELECT * FROM held_modes;

-- the root is not locked; it may be ZooKeeper's; right below it there is nothing above
SELECT zk_lock_tree('/regress/tree', '/');
SELECT zk_lock_tree_shared('/regress/tree/db', '/regress/tree');
SELECT * FROM held_modes;
-- names with a common beginning are different
SELECT zk_lock_tree('/regress/tree/dbs/db', '/regress/tree/db');
-- they are session-level locks like others
BEGIN;
SELECT zk_lock_tree('/regress/tree/rolled/back', '/regress/tree');
ROLLBACK;
SELECT * FROM held_modes;
SELECT zk_unlock_all();
SELECT * FROM held_modes;

-- at transaction level they go with the transaction, or the savepoint
BEGIN;
SELECT zk_xact_lock_tree('/regress/tree/db/t', '/regress/tree', '30s');
SAVEPOINT s;
SELECT zk_xact_lock_tree_shared('/regress/tree/db/u', '/regress/tree');
SELECT * FROM held_modes;
SELECT zk_unlock_tree('/regress/tree/db/t', '/regress/tree');
ROLLBACK TO s;
SELECT * FROM held_modes;
COMMIT;
SELECT * FROM held_modes;

-- unlocking what is not held, wholly or in part, changes nothing
SELECT zk_unlock_tree('/regress/tree/db/t', '/regress/tree');
SELECT zk_lock_tree_shared('/regress/tree/db/t', '/regress/tree');
SELECT zk_unlock_tree('/regress/tree/db/t', '/regress/tree');
SELECT * FROM held_modes;
SELECT zk_unlock_tree_shared('/regress/tree/db/t', '/regress/tree');
SELECT * FROM held_modes;
-- an exclusive lock above is not the shared one of the branch
SELECT zk_lock_tree('/regress/tree/eu', '/regress/tree');
SELECT zk_unlock_tree('/regress/tree/eu/berlin', '/regress/tree');
SELECT zk_lock('/regress/tree/eu/berlin');
SELECT zk_unlock_tree('/regress/tree/eu/berlin', '/regress/tree');
SELECT * FROM held_modes;
SELECT zk_unlock_all();
-- undoing one call once too often does not undo another
SELECT zk_lock_tree('/regress/tree/eu/berlin', '/regress/tree');
SELECT zk_lock_tree('/regress/tree/eu/paris', '/regress/tree');
SELECT zk_unlock_tree('/regress/tree/eu/berlin', '/regress/tree');
SELECT zk_unlock_tree('/regress/tree/eu/berlin', '/regress/tree');
SELECT * FROM held_modes;
-- what a transaction holds is not the session's
BEGIN;
SELECT zk_unlock_shared('/regress/tree/eu');
SELECT zk_xact_lock_tree_shared('/regress/tree/eu/paris', '/regress/tree');
SELECT zk_unlock_tree('/regress/tree/eu/paris', '/regress/tree');
COMMIT;
SELECT * FROM held_modes;
SELECT zk_unlock('/regress/tree/eu/paris');
SELECT * FROM held_modes;

-- arguments
SELECT outcome($$ SELECT zk_lock_tree(NULL, '/regress') $$);
SELECT outcome($$ SELECT zk_lock_tree('/regress/a', NULL) $$);
SELECT outcome($$ SELECT zk_lock_tree('/regress/a', '/regress', '-1s') $$);
SELECT outcome($$ SELECT zk_lock_tree('/regress//a', '/regress') $$);
SELECT outcome($$ SELECT zk_lock_tree('/regress', '/regress') $$);
SELECT outcome($$ SELECT zk_lock_tree('/regress', '/regress/a') $$);
SELECT outcome($$ SELECT zk_lock_tree('/regress/a', '/regress/') $$);
SELECT outcome($$ SELECT zk_lock_tree('/regress/a', '/reg') $$);
SELECT outcome($$ SELECT zk_lock_tree('/regress/a', 'regress') $$);
SELECT outcome($$ SELECT zk_lock_tree('/regress/a', '') $$);
SELECT outcome($$ SELECT zk_unlock_tree('/regress/a', '/b') $$);
-- a component that looks like a lock node
SELECT outcome(format('SELECT zk_lock(%L)', '/regress/tree/' || name)) FROM unnest(ARRAY['lock-0000000001',
  '_c_a-lock-0000000001', 'x-5-0000000007', 'LOCK-SHARED-0000000001', 'a__lock__-2147483648']) name;
SELECT outcome($$ SELECT zk_lock_tree('/regress/tree/LOCK-SHARED-0000000001/t', '/regress/tree') $$);
-- each of the paths must be allowed, and nothing is locked before that is known
SET zklock.allowed_paths = '/regress/tree/db/*';
SELECT outcome($$ SELECT zk_lock_tree('/regress/tree/db/t', '/regress/tree') $$);
SELECT * FROM held_modes;
SELECT zk_lock_tree('/regress/tree/db/t', '/regress/tree/db');
SELECT zk_unlock_tree('/regress/tree/db/t', '/regress/tree/db');
RESET zklock.allowed_paths;
SELECT * FROM held_modes;

-- a function that a superuser declares with other types of text, or of intervals, locks the same
CREATE DOMAIN paths AS text[];
CREATE DOMAIN patience AS interval;
CREATE FUNCTION lock_part(varchar, varchar, patience) RETURNS boolean AS '$libdir/zklock', 'zk_lock' LANGUAGE C;
CREATE FUNCTION lock_all(paths, patience) RETURNS boolean AS '$libdir/zklock', 'zk_lock_array' LANGUAGE C;
CREATE FUNCTION lock_one(varchar, patience) RETURNS boolean AS '$libdir/zklock', 'zk_lock' LANGUAGE C;
SELECT lock_part('/regress/tree/db/t', '/regress/tree', '30s');
SELECT * FROM held_modes;
SELECT zk_unlock_all();
SELECT lock_all('{/regress/tree/db/t, /regress/tree/db/u}', '30s');
SELECT * FROM held_modes;
SELECT zk_unlock_all();
SELECT lock_one('/regress/tree/db/t', '30s');
SELECT * FROM held_modes;
SELECT zk_unlock_all();
DROP FUNCTION lock_part(varchar, varchar, patience), lock_all(paths, patience), lock_one(varchar, patience);
DROP DOMAIN paths, patience;
