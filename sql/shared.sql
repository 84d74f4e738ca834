-- Shared locks, in one session.
\t on
\a
CREATE VIEW held_in_mode AS
  SELECT path, mode, scope, count FROM zk_locks
  WHERE pid = pg_backend_pid() AND state = 'held'
  ORDER BY path COLLATE "C", mode, scope;

-- acquisitions count, whatever the call
SELECT zk_lock_shared('/regress/shared_a');
SELECT zk_lock_shared('/regress/shared_a', NULL);
SELECT zk_lock_shared('/regress/shared_a', '0');
SELECT zk_lock_shared('/regress/shared_a', timeout => '1 day');
SELECT zk_try_lock_shared('/regress/shared_a');
SELECT * FROM held_in_mode;
SELECT zk_unlock_shared('/regress/shared_a') FROM generate_series(1, 4);
SELECT * FROM held_in_mode;
SELECT zk_unlock_shared('/regress/shared_a');
SELECT * FROM held_in_mode;
-- one too many is a warning, and so is the other mode's
SELECT zk_unlock_shared('/regress/shared_a');
SELECT zk_lock_shared('/regress/shared_a'), zk_unlock('/regress/shared_a');
SELECT zk_unlock_shared('/regress/shared_a');
SELECT zk_lock('/regress/shared_a'), zk_unlock_shared('/regress/shared_a');
SELECT * FROM held_in_mode;
SELECT zk_unlock('/regress/shared_a');

-- at transaction level
BEGIN;
SELECT zk_xact_lock_shared('/regress/shared_a'), zk_try_xact_lock_shared('/regress/shared_b');
SAVEPOINT s;
SELECT zk_xact_lock_shared('/regress/shared_a'), zk_xact_lock_shared('/regress/shared_c', '30 s');
SELECT * FROM held_in_mode;
ROLLBACK TO s;
SELECT * FROM held_in_mode;
SELECT zk_unlock_shared('/regress/shared_a');
COMMIT;
SELECT * FROM held_in_mode;
SELECT zk_lock_shared('/regress/shared_a');
BEGIN;
SELECT zk_xact_lock_shared('/regress/shared_a');
SELECT * FROM held_in_mode;
ROLLBACK;
SELECT * FROM held_in_mode;
SELECT zk_unlock_all();
SELECT * FROM held_in_mode;

-- several at once
SELECT zk_lock_shared(ARRAY['/regress/shared_b', '/regress/shared_a', '/regress/shared_b']);
SELECT zk_lock_shared(ARRAY['/regress/shared_a', '/regress/shared_c'], '10 s');
SELECT * FROM held_in_mode;
SELECT zk_unlock_shared(ARRAY['/regress/shared_a', '/regress/shared_b', '/regress/shared_c']);
SELECT * FROM held_in_mode;
SELECT zk_unlock_shared(ARRAY['/regress/shared_a', '/regress/shared_b']);
SELECT * FROM held_in_mode;
BEGIN;
SELECT zk_xact_lock_shared(ARRAY['/regress/shared_b', '/regress/shared_a'], '0');
SELECT * FROM held_in_mode;
COMMIT;
SELECT * FROM held_in_mode;

-- DISCARD ALL releases them
SELECT zk_lock_shared('/regress/shared_a');
DISCARD ALL;
SELECT * FROM held_in_mode;

-- a token comes with them too: above those of earlier exclusive grants, below later ones
CREATE TEMPORARY TABLE token (n int, token bigint);
SELECT zk_lock('/regress/shared_a');
INSERT INTO token VALUES (1, zk_fencing_token('/regress/shared_a'));
SELECT zk_unlock('/regress/shared_a');
SELECT zk_lock_shared('/regress/shared_a');
INSERT INTO token VALUES (2, zk_fencing_token('/regress/shared_a'));
SELECT zk_unlock_shared('/regress/shared_a');
SELECT zk_lock('/regress/shared_a');
INSERT INTO token VALUES (3, zk_fencing_token('/regress/shared_a'));
SELECT zk_unlock('/regress/shared_a');
SELECT n FROM token ORDER BY token;

-- arguments are checked as always
SELECT outcome($$ SELECT zk_lock_shared(NULL::text) $$);
SELECT outcome($$ SELECT zk_try_lock_shared('regress') $$);
SELECT outcome($$ SELECT zk_lock_shared('/regress/shared_a', '-1 s') $$);
SELECT outcome($$ SELECT zk_lock_shared(ARRAY['/regress/shared_a', NULL]) $$);
SELECT outcome($$ SELECT zk_unlock_shared(NULL::text[]) $$);
SET zklock.allowed_paths = '/regress/other';
SELECT outcome($$ SELECT zk_lock_shared('/regress/shared_a') $$);
SELECT outcome($$ SELECT zk_xact_lock_shared(ARRAY['/regress/other', '/regress/shared_a']) $$);
RESET zklock.allowed_paths;
SELECT * FROM held_in_mode;

-- each function in its mode and at its level
BEGIN;
SELECT zk_lock('/regress/shared_01'), zk_lock(ARRAY['/regress/shared_02']), zk_try_lock('/regress/shared_03'),
  zk_xact_lock('/regress/shared_04'), zk_xact_lock(ARRAY['/regress/shared_05']), zk_try_xact_lock('/regress/shared_06'),
  zk_lock_shared('/regress/shared_07'), zk_lock_shared(ARRAY['/regress/shared_08']),
  zk_try_lock_shared('/regress/shared_09'), zk_xact_lock_shared('/regress/shared_10'),
  zk_xact_lock_shared(ARRAY['/regress/shared_11']), zk_try_xact_lock_shared('/regress/shared_12');
SELECT * FROM held_in_mode;
COMMIT;
SELECT zk_unlock_all();
