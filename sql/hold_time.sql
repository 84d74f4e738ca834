-- zklock.max_hold_time: until when a lock is held at most, as zk_locks tells.
\t on
\a
CREATE VIEW ends AS
  SELECT mode, scope, count, expires_at - granted_at AS held_for, expires_at FROM zk_locks
  WHERE pid = pg_backend_pid() AND path = '/regress/hold' AND state = 'held' ORDER BY mode, scope;
-- without the setting there is no limit, nor does a later one make one of what is held
SELECT zk_lock('/regress/hold');
SET zklock.max_hold_time = '1ms';
SELECT zk_lock('/regress/hold');
SELECT mode, scope, count, held_for IS NULL FROM ends;
SELECT zk_unlock_all();
-- to acquire it again does not make it longer
SET zklock.max_hold_time = '1h';
SELECT zk_lock('/regress/hold');
SELECT mode, scope, count, held_for FROM ends;
SELECT expires_at FROM ends \gset
SET zklock.max_hold_time = 0;
SELECT zk_lock('/regress/hold'), zk_lock_shared('/regress/hold');
BEGIN;
SELECT zk_xact_lock('/regress/hold');
SELECT mode, scope, count, expires_at = :'expires_at' FROM ends;
COMMIT;
-- nor does a downgrade
SELECT zk_unlock('/regress/hold'), zk_unlock('/regress/hold');
SELECT mode, scope, count, expires_at = :'expires_at' FROM ends;
-- an upgrade has a time of its own
SELECT zk_lock('/regress/hold');
SELECT mode, scope, count, expires_at = :'expires_at' FROM ends;
SELECT zk_unlock_all();
-- so has a permit
SET zklock.max_hold_time = '1h';
SELECT zk_semaphore_acquire('/regress/hold', 1);
SELECT kind, expires_at - granted_at FROM zk_locks WHERE pid = pg_backend_pid();
SELECT zk_lease_remaining('/regress/hold') > '0';
SELECT zk_unlock_all();
RESET zklock.max_hold_time;
SELECT outcome($$ SELECT zk_lease_remaining('/regress/hold') $$);
DROP VIEW ends;
