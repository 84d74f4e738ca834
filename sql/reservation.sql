-- Reservations. What becomes of them across sessions, servers and restarts is in test/t/locks/reservations.pl.
\t on
\a

-- the example of the documents
SELECT zk_reserve('/regress/reserved', '30s', '30s') AS token \gset
SELECT zk_renew('/regress/reserved', :token, '30s');
BEGIN;
SELECT zk_rely('/regress/reserved', :token);
CREATE TABLE regress_reserved (i int);
COMMIT;
SELECT zk_unreserve('/regress/reserved', :token);
DROP TABLE regress_reserved;
SELECT zk_unreserve('/regress/reserved', :token), zk_renew('/regress/reserved', :token, '30s');
SELECT outcome(format('SELECT zk_rely(%L, %s)', '/regress/reserved', :token));

-- a rollback undoes none of it, nor does the end of what the session holds
BEGIN;
SELECT zk_reserve('/regress/reserved', '1h') AS token \gset
ROLLBACK;
SELECT zk_unlock_all();
SELECT pid, kind, mode, scope, state, granted, count, fencing_token = :token, expires_at - granted_at
  FROM zk_locks WHERE path = '/regress/reserved';
SELECT granted, persistent, mode, pid, fencing_token = :token FROM zk_contenders('/regress/reserved');
SELECT zk_try_lock('/regress/reserved'), zk_reserve('/regress/reserved', '1s', '0'), zk_lock_persistent('/regress/reserved');
SELECT outcome('SELECT zk_fencing_token(''/regress/reserved'')');
BEGIN;
SELECT zk_unreserve('/regress/reserved', :token);
ROLLBACK;
SELECT count(*) FROM zk_locks WHERE path = '/regress/reserved';

-- the end counts from the renewal on
SELECT zk_reserve('/regress/reserved', '1 day') AS token \gset
SELECT zk_renew('/regress/reserved', :token, '1min');
SELECT expires_at - granted_at < '1h' FROM zk_locks WHERE path = '/regress/reserved';
SET zklock.commit_guard = off;
BEGIN;
SELECT zk_rely('/regress/reserved', :token);
SELECT zk_unreserve('/regress/reserved', :token);
COMMIT;
RESET zklock.commit_guard;

-- it cannot be prepared for what it would be told later
SELECT zk_reserve('/regress/reserved', '1h') AS token \gset
BEGIN;
SELECT zk_rely('/regress/reserved', :token);
SELECT zk_unreserve('/regress/reserved', :token);
PREPARE TRANSACTION 'regress_reserved';

-- a session's own lock is in the way
SELECT zk_lock_shared('/regress/reserved');
SELECT outcome('SELECT zk_reserve(''/regress/reserved'', ''1h'')');
SELECT zk_unlock_shared('/regress/reserved');
BEGIN;
SELECT zk_xact_lock('/regress/reserved');
SELECT outcome('SELECT zk_reserve(''/regress/reserved'', ''1h'')');
ROLLBACK;

-- locks at session level may be forbidden
SET zklock.session_locks = off;
SELECT zk_unreserve('/regress/reserved', zk_reserve('/regress/reserved', '1h'));
RESET zklock.session_locks;

-- other uses of the path
SELECT zk_claim('/regress/reserved/claim', clock_timestamp());
SELECT outcome('SELECT zk_reserve(''/regress/reserved/claim'', ''1h'')');

-- arguments
SELECT outcome('SELECT zk_reserve(NULL, ''1h'')');
SELECT outcome('SELECT zk_reserve(''/regress/reserved'', NULL)');
SELECT outcome('SELECT zk_reserve(''/regress/reserved'', ''0'')');
SELECT outcome('SELECT zk_reserve(''/regress/reserved'', ''1 day 1ms'')');
SELECT outcome('SELECT zk_reserve(''/regress/reserved'', ''1h'', ''-1s'')');
SELECT outcome('SELECT zk_renew(''/regress/reserved'', NULL, ''1h'')');
SELECT outcome('SELECT zk_renew(''/regress/reserved'', 1, ''25h'')');
SELECT outcome('SELECT zk_rely(''/regress/reserved'', NULL)');
SELECT outcome('SELECT zk_unreserve(''regress'', 1)');

-- nobody may by default, and a role only below its paths
CREATE ROLE regress_zklock_batch;
SET ROLE regress_zklock_batch;
SELECT outcome('SELECT zk_reserve(''/regress/reserved'', ''1h'')');
RESET ROLE;
GRANT EXECUTE ON FUNCTION zk_reserve, zk_unreserve TO regress_zklock_batch;
SET zklock.allowed_paths = '/regress/reserved/batch/*';
SET ROLE regress_zklock_batch;
SELECT outcome('SELECT zk_reserve(''/regress/reserved'', ''1h'')');
SELECT zk_reserve('/regress/reserved/batch/job', '1h') AS token \gset
RESET ROLE;
-- it may end what it has reserved below a path that it has lost since
SET zklock.allowed_paths = '';
SET ROLE regress_zklock_batch;
SELECT zk_unreserve('/regress/reserved/batch/job', :token);
RESET ROLE;
RESET zklock.allowed_paths;
DROP OWNED BY regress_zklock_batch;
DROP ROLE regress_zklock_batch;
