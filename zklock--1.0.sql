/* zklock--1.0.sql */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION zklock" to load this file. \quit

/*
 * Locks.  Not STRICT: a NULL path must be an error, not a lock that is
 * silently not taken.
 */
CREATE FUNCTION zk_lock(path text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_lock'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_lock(text, interval) IS
'acquire an exclusive session-level lock on a ZooKeeper path; false if the timeout passed';

CREATE FUNCTION zk_lock(paths text[], timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_lock_array'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_lock(text[], interval) IS
'acquire exclusive session-level locks on all of several ZooKeeper paths, or none; false if the timeout passed';

CREATE FUNCTION zk_xact_lock(path text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_xact_lock'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_xact_lock(text, interval) IS
'acquire an exclusive transaction-level lock on a ZooKeeper path; false if the timeout passed';

CREATE FUNCTION zk_xact_lock(paths text[], timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_xact_lock_array'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_xact_lock(text[], interval) IS
'acquire exclusive transaction-level locks on all of several ZooKeeper paths, or none; false if the timeout passed';

CREATE FUNCTION zk_try_lock(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_lock'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_try_lock(text) IS
'acquire an exclusive session-level lock on a ZooKeeper path if it is free';

CREATE FUNCTION zk_try_xact_lock(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_xact_lock'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_try_xact_lock(text) IS
'acquire an exclusive transaction-level lock on a ZooKeeper path if it is free';

CREATE FUNCTION zk_lock_shared(path text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_lock_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_lock_shared(text, interval) IS
'acquire a shared session-level lock on a ZooKeeper path; false if the timeout passed';

CREATE FUNCTION zk_lock_shared(paths text[], timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_lock_shared_array'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_lock_shared(text[], interval) IS
'acquire shared session-level locks on all of several ZooKeeper paths, or none; false if the timeout passed';

CREATE FUNCTION zk_xact_lock_shared(path text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_xact_lock_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_xact_lock_shared(text, interval) IS
'acquire a shared transaction-level lock on a ZooKeeper path; false if the timeout passed';

CREATE FUNCTION zk_xact_lock_shared(paths text[], timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_xact_lock_shared_array'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_xact_lock_shared(text[], interval) IS
'acquire shared transaction-level locks on all of several ZooKeeper paths, or none; false if the timeout passed';

CREATE FUNCTION zk_try_lock_shared(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_lock_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_try_lock_shared(text) IS
'acquire a shared session-level lock on a ZooKeeper path if nobody has or wants it exclusively';

CREATE FUNCTION zk_try_xact_lock_shared(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_xact_lock_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_try_xact_lock_shared(text) IS
'acquire a shared transaction-level lock on a ZooKeeper path if nobody has or wants it exclusively';

CREATE FUNCTION zk_unlock(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_unlock(text) IS
'release one exclusive session-level lock on a ZooKeeper path; false if it was not held';

CREATE FUNCTION zk_unlock(paths text[])
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock_array'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_unlock(text[]) IS
'release one exclusive session-level lock on each of several ZooKeeper paths; false if one was not held';

CREATE FUNCTION zk_unlock_shared(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_unlock_shared(text) IS
'release one shared session-level lock on a ZooKeeper path; false if it was not held';

CREATE FUNCTION zk_unlock_shared(paths text[])
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock_shared_array'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_unlock_shared(text[]) IS
'release one shared session-level lock on each of several ZooKeeper paths; false if one was not held';

CREATE FUNCTION zk_unlock_all()
RETURNS void
AS 'MODULE_PATHNAME', 'zk_unlock_all'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_unlock_all() IS
'release all session-level locks and semaphore permits of this session';

CREATE FUNCTION zk_lock_tree(path text, root text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_lock_tree'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_lock_tree(text, text, interval) IS
'acquire an exclusive session-level lock on a ZooKeeper path and shared ones on all paths above it, below root; false if the timeout passed';

CREATE FUNCTION zk_lock_tree_shared(path text, root text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_lock_tree_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_lock_tree_shared(text, text, interval) IS
'acquire shared session-level locks on a ZooKeeper path and all paths above it, below root; false if the timeout passed';

CREATE FUNCTION zk_xact_lock_tree(path text, root text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_xact_lock_tree'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_xact_lock_tree(text, text, interval) IS
'acquire an exclusive transaction-level lock on a ZooKeeper path and shared ones on all paths above it, below root; false if the timeout passed';

CREATE FUNCTION zk_xact_lock_tree_shared(path text, root text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_xact_lock_tree_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_xact_lock_tree_shared(text, text, interval) IS
'acquire shared transaction-level locks on a ZooKeeper path and all paths above it, below root; false if the timeout passed';

CREATE FUNCTION zk_unlock_tree(path text, root text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock_tree'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_unlock_tree(text, text) IS
'undo one zk_lock_tree with the same arguments; false if one of its locks was not held';

CREATE FUNCTION zk_unlock_tree_shared(path text, root text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock_tree_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_unlock_tree_shared(text, text) IS
'undo one zk_lock_tree_shared with the same arguments; false if one of its locks was not held';

CREATE FUNCTION zk_fencing_token(path text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_fencing_token'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_fencing_token(text) IS
'fencing token of the lock this session holds on a ZooKeeper path';

/* Semaphores */
CREATE FUNCTION zk_semaphore_acquire(path text, permits integer, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_semaphore_acquire'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_semaphore_acquire(text, integer, interval) IS
'acquire one more of a number of permits of the semaphore at a ZooKeeper path; false if the timeout passed';

CREATE FUNCTION zk_semaphore_release(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_semaphore_release'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_semaphore_release(text) IS
'release one permit of a semaphore at a ZooKeeper path; false if none was held';

/* Monitoring */
CREATE FUNCTION zk_locks(
	OUT pid integer,
	OUT datname text,
	OUT path text,
	OUT kind text,
	OUT mode text,
	OUT scope text,
	OUT state text,
	OUT granted boolean,
	OUT count integer,
	OUT node text,
	OUT fencing_token bigint,
	OUT wait_start timestamptz,
	OUT granted_at timestamptz,
	OUT blocked_by_pid integer,
	OUT blocked_by_node text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_locks'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_locks() IS
'locks held and waited for by this server; see view zk_locks';

CREATE VIEW zk_locks AS SELECT * FROM zk_locks();
COMMENT ON VIEW zk_locks IS
'locks held and waited for by this server';
COMMENT ON COLUMN zk_locks.pid IS 'process of the session that holds or waits';
COMMENT ON COLUMN zk_locks.datname IS 'database of that session';
COMMENT ON COLUMN zk_locks.path IS 'ZooKeeper path, below the chroot of zklock.servers';
COMMENT ON COLUMN zk_locks.kind IS 'what it is: lock or semaphore';
COMMENT ON COLUMN zk_locks.mode IS 'exclusive or shared; NULL for a semaphore';
COMMENT ON COLUMN zk_locks.scope IS 'session or transaction';
COMMENT ON COLUMN zk_locks.state IS 'requested, waiting, held, suspended, lost, failed or releasing';
COMMENT ON COLUMN zk_locks.granted IS 'whether the lock is held';
COMMENT ON COLUMN zk_locks.count IS 'how often it was acquired in this scope; 0 while it is waited for';
COMMENT ON COLUMN zk_locks.node IS 'ZooKeeper node below path; sessions of one server may share it';
COMMENT ON COLUMN zk_locks.fencing_token IS 'token of the held lock';
COMMENT ON COLUMN zk_locks.wait_start IS 'when a waiting session asked for it';
COMMENT ON COLUMN zk_locks.granted_at IS 'when it was granted';
COMMENT ON COLUMN zk_locks.blocked_by_pid IS 'process of this server that is waited for';
COMMENT ON COLUMN zk_locks.blocked_by_node IS 'node of another server or client that is waited for';

CREATE FUNCTION zk_session(
	OUT state text,
	OUT server text,
	OUT session_id text,
	OUT negotiated_timeout interval,
	OUT lease_remaining interval,
	OUT connected_since timestamptz,
	OUT worker_pid integer,
	OUT reconnects bigint,
	OUT expirations bigint,
	OUT last_error text,
	OUT last_error_at timestamptz)
RETURNS record
AS 'MODULE_PATHNAME', 'zk_session'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_session() IS
'the ZooKeeper session of this server; see view zk_session';

CREATE VIEW zk_session AS SELECT * FROM zk_session();
COMMENT ON VIEW zk_session IS
'the ZooKeeper session of this server, in one row';
COMMENT ON COLUMN zk_session.state IS 'connected, connecting, down, authentication failed or no worker';
COMMENT ON COLUMN zk_session.server IS 'ZooKeeper server connected to';
COMMENT ON COLUMN zk_session.session_id IS 'id of the ZooKeeper session';
COMMENT ON COLUMN zk_session.negotiated_timeout IS 'time after which ZooKeeper ends the session of a silent client';
COMMENT ON COLUMN zk_session.lease_remaining IS 'for how long the session is proved to be alive, and locks to be held; zero if they are suspended';
COMMENT ON COLUMN zk_session.connected_since IS 'when the connection was made';
COMMENT ON COLUMN zk_session.worker_pid IS 'process of the zklock worker';
COMMENT ON COLUMN zk_session.reconnects IS 'how often the session was continued on a new connection';
COMMENT ON COLUMN zk_session.expirations IS 'how often a session ended, and its locks with it';
COMMENT ON COLUMN zk_session.last_error IS 'last trouble with ZooKeeper';
COMMENT ON COLUMN zk_session.last_error_at IS 'when that was';

/* Every lock is load on a service others depend on: nobody may by default. */
REVOKE ALL ON FUNCTION
	zk_lock(text, interval), zk_lock(text[], interval),
	zk_xact_lock(text, interval), zk_xact_lock(text[], interval),
	zk_try_lock(text), zk_try_xact_lock(text),
	zk_lock_shared(text, interval), zk_lock_shared(text[], interval),
	zk_xact_lock_shared(text, interval), zk_xact_lock_shared(text[], interval),
	zk_try_lock_shared(text), zk_try_xact_lock_shared(text),
	zk_unlock(text), zk_unlock(text[]),
	zk_unlock_shared(text), zk_unlock_shared(text[]), zk_unlock_all(),
	zk_lock_tree(text, text, interval), zk_lock_tree_shared(text, text, interval),
	zk_xact_lock_tree(text, text, interval), zk_xact_lock_tree_shared(text, text, interval),
	zk_unlock_tree(text, text), zk_unlock_tree_shared(text, text),
	zk_fencing_token(text),
	zk_semaphore_acquire(text, integer, interval), zk_semaphore_release(text),
	zk_locks(), zk_session()
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_locks(), zk_session() TO pg_monitor;
GRANT SELECT ON zk_locks, zk_session TO pg_monitor;

/*
 * Fencing.  zk_fences has to survive what the data it protects survives, so it
 * is dumped.  Collation "C" has no versions: an index on another one could
 * break with the operating system's next release, and forget a token.
 */
CREATE TABLE zk_fences (
	path text COLLATE "C" PRIMARY KEY,
	token bigint NOT NULL,
	fenced_at timestamptz NOT NULL,
	fenced_by text NOT NULL);
COMMENT ON TABLE zk_fences IS
'highest fencing token seen for each ZooKeeper path, by zk_fence()';
COMMENT ON COLUMN zk_fences.path IS 'ZooKeeper path';
COMMENT ON COLUMN zk_fences.token IS 'highest fencing token seen';
COMMENT ON COLUMN zk_fences.fenced_at IS 'when a transaction last fenced the path';
COMMENT ON COLUMN zk_fences.fenced_by IS 'whose session that was';
SELECT pg_catalog.pg_extension_config_dump('zk_fences', '');

CREATE FUNCTION zk_fence(path text, token bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_fence'
LANGUAGE C VOLATILE PARALLEL UNSAFE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION zk_fence(text, bigint) IS
'refuse a fencing token that is older than one seen in this database; holds back other tokens until the transaction ends';

REVOKE ALL ON FUNCTION zk_fence(text, bigint) FROM PUBLIC;
REVOKE ALL ON TABLE zk_fences FROM PUBLIC;
GRANT SELECT ON TABLE zk_fences TO pg_monitor;

/* Administration.  It reaches into other servers' and clients' locks: for superusers. */
CREATE FUNCTION zk_remove_stale_node(path text, node text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_remove_stale_node'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_remove_stale_node(text, text) IS
'delete the node of a lock whose ZooKeeper session is dead; false if there is no such node';
REVOKE ALL ON FUNCTION zk_remove_stale_node(text, text) FROM PUBLIC;
