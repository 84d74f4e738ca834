-- Both modes of one path in one session.
\t on
\a
-- the exclusive lock includes the shared one; what is left of it is the shared one
SELECT zk_lock('/regress/upgrade_a'), zk_lock_shared('/regress/upgrade_a', '0'),
  zk_try_lock_shared('/regress/upgrade_a');
SELECT * FROM held_in_mode;
SELECT count(DISTINCT node) FROM zk_locks WHERE pid = pg_backend_pid();
SELECT zk_unlock('/regress/upgrade_a');
SELECT * FROM held_in_mode;
SELECT node ~ '^_c_[-0-9a-f]{36}-__READ__\d{10}$' FROM zk_locks WHERE pid = pg_backend_pid();
SELECT zk_unlock_shared('/regress/upgrade_a'), zk_unlock_shared('/regress/upgrade_a');
SELECT * FROM held_in_mode;
-- in the other order nothing is left of it
SELECT zk_lock('/regress/upgrade_a'), zk_lock_shared('/regress/upgrade_a');
SELECT zk_unlock_shared('/regress/upgrade_a');
SELECT * FROM held_in_mode;
SELECT zk_unlock('/regress/upgrade_a');
SELECT * FROM held_in_mode;

-- a shared holder can become the exclusive one, and go back
SELECT zk_lock_shared('/regress/upgrade_a'), zk_try_lock('/regress/upgrade_a'),
  zk_lock('/regress/upgrade_a'), zk_lock_shared('/regress/upgrade_a');
SELECT * FROM held_in_mode;
SELECT zk_unlock('/regress/upgrade_a'), zk_unlock('/regress/upgrade_a');
SELECT * FROM held_in_mode;
SELECT zk_lock('/regress/upgrade_a', '30 s'), zk_unlock_shared('/regress/upgrade_a'),
  zk_unlock_shared('/regress/upgrade_a');
SELECT * FROM held_in_mode;
-- to and fro
SELECT zk_lock_shared('/regress/upgrade_a'), zk_unlock('/regress/upgrade_a'),
  zk_lock('/regress/upgrade_a'), zk_unlock_shared('/regress/upgrade_a'),
  zk_lock_shared('/regress/upgrade_a'), zk_unlock('/regress/upgrade_a');
SELECT * FROM held_in_mode;
SELECT zk_unlock_all();
SELECT * FROM held_in_mode;

-- tokens go on increasing
CREATE TEMPORARY TABLE token (n serial, token bigint);
SELECT zk_lock('/regress/upgrade_a'), zk_lock_shared('/regress/upgrade_a');
INSERT INTO token (token) VALUES (zk_fencing_token('/regress/upgrade_a'));
SELECT zk_unlock('/regress/upgrade_a');
-- what is downgraded keeps its token
SELECT zk_fencing_token('/regress/upgrade_a') = token FROM token;
SELECT zk_lock('/regress/upgrade_a');
INSERT INTO token (token) VALUES (zk_fencing_token('/regress/upgrade_a'));
SELECT zk_unlock('/regress/upgrade_a'), zk_lock('/regress/upgrade_a');
INSERT INTO token (token) VALUES (zk_fencing_token('/regress/upgrade_a'));
SELECT zk_unlock_all(), zk_lock('/regress/upgrade_a');
INSERT INTO token (token) VALUES (zk_fencing_token('/regress/upgrade_a'));
SELECT n FROM token ORDER BY token;
SELECT count(DISTINCT token) FROM token;
SELECT zk_unlock_all();

-- scopes: each mode goes with what acquired it
BEGIN;
SELECT zk_xact_lock('/regress/upgrade_a'), zk_lock_shared('/regress/upgrade_a');
SELECT * FROM held_in_mode;
COMMIT;
SELECT * FROM held_in_mode;
BEGIN;
SELECT zk_xact_lock('/regress/upgrade_a');
SELECT * FROM held_in_mode;
ROLLBACK;
SELECT * FROM held_in_mode;
SELECT zk_unlock_all();
SELECT zk_lock('/regress/upgrade_a');
BEGIN;
SELECT zk_xact_lock_shared('/regress/upgrade_a');
SELECT zk_unlock_all();
SELECT * FROM held_in_mode;
COMMIT;
SELECT * FROM held_in_mode;
BEGIN;
SELECT zk_xact_lock('/regress/upgrade_a'), zk_xact_lock_shared('/regress/upgrade_a'),
  zk_xact_lock('/regress/upgrade_b'), zk_xact_lock_shared('/regress/upgrade_b');
SELECT * FROM held_in_mode;
COMMIT;
SELECT * FROM held_in_mode;

-- the one acquired last is not the one that goes last
BEGIN;
SELECT zk_lock('/regress/upgrade_a'), zk_xact_lock_shared('/regress/upgrade_a'), zk_xact_lock('/regress/upgrade_a');
SELECT zk_unlock('/regress/upgrade_a');
SELECT * FROM held_in_mode;
COMMIT;
SELECT * FROM held_in_mode;

-- savepoints
BEGIN;
SELECT zk_xact_lock_shared('/regress/upgrade_a');
SAVEPOINT s;
SELECT zk_xact_lock('/regress/upgrade_a'), zk_xact_lock('/regress/upgrade_b');
SAVEPOINT t;
SELECT zk_xact_lock_shared('/regress/upgrade_b');
SELECT * FROM held_in_mode;
RELEASE t;
SELECT * FROM held_in_mode;
ROLLBACK TO s;
SELECT * FROM held_in_mode;
SELECT zk_xact_lock('/regress/upgrade_b');
SAVEPOINT t;
SELECT zk_xact_lock('/regress/upgrade_a'), zk_xact_lock_shared('/regress/upgrade_b');
ROLLBACK TO t;
SELECT * FROM held_in_mode;
SELECT zk_lock_shared('/regress/upgrade_b');
ROLLBACK TO s;
SELECT * FROM held_in_mode;
ROLLBACK;
SELECT * FROM held_in_mode;
SELECT zk_unlock_all();
BEGIN;
SAVEPOINT s;
SELECT zk_xact_lock('/regress/upgrade_a');
SAVEPOINT t;
SELECT zk_xact_lock_shared('/regress/upgrade_a');
RELEASE t;
ROLLBACK TO s;
SELECT * FROM held_in_mode;
COMMIT;
SELECT * FROM held_in_mode;

-- several at once, some held already in either mode
SELECT zk_lock('/regress/upgrade_a'), zk_lock_shared('/regress/upgrade_b');
SELECT zk_lock(ARRAY['/regress/upgrade_a', '/regress/upgrade_b', '/regress/upgrade_c']);
SELECT zk_lock_shared(ARRAY['/regress/upgrade_a', '/regress/upgrade_b', '/regress/upgrade_c']);
SELECT * FROM held_in_mode;
SELECT zk_unlock(ARRAY['/regress/upgrade_a', '/regress/upgrade_b', '/regress/upgrade_c']);
SELECT * FROM held_in_mode;
SELECT zk_unlock_all();
SELECT * FROM held_in_mode;
DROP VIEW held_in_mode;
