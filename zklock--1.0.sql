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
AS 'MODULE_PATHNAME', 'zk_lock'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_try_lock(text) IS
'acquire an exclusive session-level lock on a ZooKeeper path if it is free';

CREATE FUNCTION zk_try_xact_lock(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_xact_lock'
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
AS 'MODULE_PATHNAME', 'zk_lock_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_try_lock_shared(text) IS
'acquire a shared session-level lock on a ZooKeeper path if nobody has or wants it exclusively';

CREATE FUNCTION zk_try_xact_lock_shared(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_xact_lock_shared'
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
AS 'MODULE_PATHNAME', 'zk_lock'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_lock_tree(text, text, interval) IS
'acquire an exclusive session-level lock on a ZooKeeper path and shared ones on all paths above it, below root; false if the timeout passed';

CREATE FUNCTION zk_lock_tree_shared(path text, root text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_lock_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_lock_tree_shared(text, text, interval) IS
'acquire shared session-level locks on a ZooKeeper path and all paths above it, below root; false if the timeout passed';

CREATE FUNCTION zk_xact_lock_tree(path text, root text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_xact_lock'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_xact_lock_tree(text, text, interval) IS
'acquire an exclusive transaction-level lock on a ZooKeeper path and shared ones on all paths above it, below root; false if the timeout passed';

CREATE FUNCTION zk_xact_lock_tree_shared(path text, root text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_xact_lock_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_xact_lock_tree_shared(text, text, interval) IS
'acquire shared transaction-level locks on a ZooKeeper path and all paths above it, below root; false if the timeout passed';

CREATE FUNCTION zk_unlock_tree(path text, root text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_unlock_tree(text, text) IS
'undo one zk_lock_tree with the same arguments; false if one of its locks was not held';

CREATE FUNCTION zk_unlock_tree_shared(path text, root text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_unlock_tree_shared(text, text) IS
'undo one zk_lock_tree_shared with the same arguments; false if one of its locks was not held';

CREATE FUNCTION zk_fencing_token(path text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_fencing_token'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_fencing_token(text) IS
'fencing token of the lock this session holds on a ZooKeeper path';

CREATE FUNCTION zk_lease_remaining(path text)
RETURNS interval
AS 'MODULE_PATHNAME', 'zk_lease_remaining'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_lease_remaining(text) IS
'for how long this session is proved to hold what it has at a ZooKeeper path, or this server to lead there';

/* Semaphores */
CREATE FUNCTION zk_semaphore_acquire(path text, permits integer, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_semaphore_acquire'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_semaphore_acquire(text, integer, interval) IS
'acquire one more of a number of permits of the semaphore at a ZooKeeper path; false if the timeout passed';

CREATE FUNCTION zk_xact_semaphore_acquire(path text, permits integer, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_xact_semaphore_acquire'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_xact_semaphore_acquire(text, integer, interval) IS
'acquire one more of a number of permits of the semaphore at a ZooKeeper path, until the transaction ends; false if the timeout passed';

CREATE FUNCTION zk_semaphore_release(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_semaphore_release'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_semaphore_release(text) IS
'release one permit of a semaphore at a ZooKeeper path; false if none was held';

/* Reservations: locks that the server holds for whoever knows their tokens. */
CREATE FUNCTION zk_reserve(path text, duration interval, timeout interval DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_reserve'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_reserve(text, interval, interval) IS
'have this server hold the exclusive lock on a ZooKeeper path for a time: its fencing token, or null if the timeout passed; not undone by a rollback';

CREATE FUNCTION zk_renew(path text, token bigint, duration interval)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_renew'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_renew(text, bigint, interval) IS
'have a reservation end so long from now; false if it is over';

CREATE FUNCTION zk_rely(path text, token bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_rely'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_rely(text, bigint) IS
'have the transaction fail if a reservation is over, now or when it commits';

CREATE FUNCTION zk_unreserve(path text, token bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unreserve'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_unreserve(text, bigint) IS
'end a reservation; false if it is over';

/* Locks that no session holds: they stay until somebody unlocks them. */
CREATE FUNCTION zk_lock_persistent(path text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_lock_persistent'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_lock_persistent(text) IS
'lock a ZooKeeper path until zk_unlock_persistent(), also across restarts: the fencing token, or null if the path is locked';

CREATE FUNCTION zk_lock_persistent_shared(path text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'zk_lock_persistent_shared'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_lock_persistent_shared(text) IS
'lock a ZooKeeper path in shared mode until zk_unlock_persistent(), also across restarts: the fencing token, or null if the path is locked';

CREATE FUNCTION zk_unlock_persistent(path text, token bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_unlock_persistent'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_unlock_persistent(text, bigint) IS
'release a persistent lock, whoever took it; false if there is none with that fencing token';

/* Claims of slots.  Nobody else can claim the slot any more. */
CREATE FUNCTION zk_claim(path text, slot timestamptz)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_claim'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_claim(text, timestamptz) IS
'claim a slot, once for all servers: true if it is later than the last slot claimed on the path; not undone by a rollback';

CREATE FUNCTION zk_claim_next(path text, step interval, upto timestamptz DEFAULT now(), "limit" integer DEFAULT NULL)
RETURNS timestamptz
AS 'MODULE_PATHNAME', 'zk_claim_next'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_claim_next(text, interval, timestamptz, integer) IS
'claim the oldest slot that nobody has claimed, of those of a length that have begun: that slot; NULL if there is none';

CREATE FUNCTION zk_last_claim(
	path text,
	OUT slot timestamptz,
	OUT claimed_at timestamptz,
	OUT server text,
	OUT pid integer,
	OUT usename text,
	OUT application_name text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_last_claim'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 1;
COMMENT ON FUNCTION zk_last_claim(text) IS
'the last slot claimed on a path, by whom and when';

CREATE FUNCTION zk_claim_reset(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_claim_reset'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_claim_reset(text) IS
'have a path forget which slot was claimed last; for superusers';

/*
 * ZooKeeper's queues.  What is offered and removed is not undone by a rollback,
 * but for zk_xact_queue_take().
 */
CREATE FUNCTION zk_queue_offer(path text, data bytea)
RETURNS text
AS 'MODULE_PATHNAME', 'zk_queue_offer'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_queue_offer(text, bytea) IS
'add an element at the end of a ZooKeeper queue; returns its name';

CREATE FUNCTION zk_queue_peek(path text)
RETURNS bytea
AS 'MODULE_PATHNAME', 'zk_queue_peek'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_queue_peek(text) IS
'the first element of a ZooKeeper queue, which stays there; NULL if there is none';

CREATE FUNCTION zk_queue_remove(path text)
RETURNS bytea
AS 'MODULE_PATHNAME', 'zk_queue_take'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_queue_remove(text) IS
'remove the first element of a ZooKeeper queue; NULL if there is none';

CREATE FUNCTION zk_queue_take(path text, timeout interval DEFAULT NULL)
RETURNS bytea
AS 'MODULE_PATHNAME', 'zk_queue_take'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_queue_take(text, interval) IS
'remove the first element of a ZooKeeper queue, waiting for one; NULL if the timeout has passed';

CREATE FUNCTION zk_xact_queue_take(
	path text,
	timeout interval DEFAULT NULL,
	OUT element text,
	OUT data bytea,
	OUT token bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'zk_xact_queue_take'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_xact_queue_take(text, interval) IS
'take the first element of a ZooKeeper queue, which goes when the transaction commits and otherwise stays';

CREATE FUNCTION zk_queue_length(path text)
RETURNS integer
AS 'MODULE_PATHNAME', 'zk_queue_length'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_queue_length(text) IS
'how many elements a ZooKeeper queue has';

CREATE FUNCTION zk_queue_elements(
	path text,
	OUT "position" integer,
	OUT element text,
	OUT length integer,
	OUT created timestamptz,
	OUT taken boolean,
	OUT server text,
	OUT pid integer,
	OUT usename text,
	OUT application_name text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_queue_elements'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_queue_elements(text) IS
'the elements of a ZooKeeper queue, without their data, and whose transaction has taken them';

/* Elections */
CREATE FUNCTION zk_is_leader(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_is_leader'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_is_leader(text) IS
'whether this server leads the election at a path, provably; if so, the transaction cannot commit what it writes once it does not any more';

CREATE FUNCTION zk_await_leadership(path text, timeout interval DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_await_leadership'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_await_leadership(text, interval) IS
'wait until this server leads the election at a path; false if the timeout has passed';

CREATE FUNCTION zk_resign(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_resign'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_resign(text) IS
'give up leadership and go to the end of the queue; returns when another leads, or this server in a new term';

CREATE FUNCTION zk_leader(
	path text,
	OUT server text,
	OUT owner text,
	OUT session text,
	OUT term bigint,
	OUT since timestamptz)
RETURNS record
AS 'MODULE_PATHNAME', 'zk_leader'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_leader(text) IS
'who leads the election at a path, of all servers and clients, as ZooKeeper knows';

CREATE FUNCTION zk_elections(
	OUT path text,
	OUT state text,
	OUT is_leader boolean,
	OUT term bigint,
	OUT "position" integer,
	OUT since timestamptz,
	OUT leader text,
	OUT priority integer,
	OUT leader_priority integer,
	OUT preferred text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_elections'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_elections() IS
'elections at which this server stands; see view zk_elections';

CREATE VIEW zk_elections AS SELECT * FROM zk_elections();
COMMENT ON VIEW zk_elections IS 'elections at which this server stands';
COMMENT ON COLUMN zk_elections.path IS 'as in zklock.elections';
COMMENT ON COLUMN zk_elections.state IS 'offer, ready, elected, suspended, failed, or stop';
COMMENT ON COLUMN zk_elections.is_leader IS 'whether this server leads, provably';
COMMENT ON COLUMN zk_elections.term IS 'fencing token of its leadership; NULL if it does not lead';
COMMENT ON COLUMN zk_elections."position" IS 'in the queue of candidates; NULL if it has none yet';
COMMENT ON COLUMN zk_elections.since IS 'when that state began';
COMMENT ON COLUMN zk_elections.leader IS 'who leads, as its node in ZooKeeper says; NULL if ZooKeeper does not tell at once';
COMMENT ON COLUMN zk_elections.priority IS 'of this server, as in zklock.elections';
COMMENT ON COLUMN zk_elections.leader_priority IS 'that the leader''s node tells, 0 if none; NULL if that is not known';
COMMENT ON COLUMN zk_elections.preferred IS 'candidate of a higher priority to which this leader will give way, as its node says; NULL if there is none';

/* Monitoring.  zk_locks() shows of others' locks what is nobody's secret. */
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
	OUT expires_at timestamptz,
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
COMMENT ON COLUMN zk_locks.pid IS 'process of the session that holds or waits; NULL for a reservation';
COMMENT ON COLUMN zk_locks.datname IS 'database of that session';
COMMENT ON COLUMN zk_locks.path IS 'ZooKeeper path, below the chroot of zklock.servers';
COMMENT ON COLUMN zk_locks.kind IS 'what it is: lock or semaphore';
COMMENT ON COLUMN zk_locks.mode IS 'exclusive or shared; NULL for a semaphore';
COMMENT ON COLUMN zk_locks.scope IS 'session, transaction or reservation';
COMMENT ON COLUMN zk_locks.state IS 'requested, waiting, held, suspended, lost, failed or releasing';
COMMENT ON COLUMN zk_locks.granted IS 'whether the lock is held';
COMMENT ON COLUMN zk_locks.count IS 'how often it was acquired in this scope; 0 while it is waited for';
COMMENT ON COLUMN zk_locks.node IS 'ZooKeeper node below path; sessions of one server may share it';
COMMENT ON COLUMN zk_locks.fencing_token IS 'token of the held lock';
COMMENT ON COLUMN zk_locks.wait_start IS 'when a waiting session asked for it';
COMMENT ON COLUMN zk_locks.granted_at IS 'when it was granted';
COMMENT ON COLUMN zk_locks.expires_at IS 'when it will be lost, if it is held until then; see zklock.max_hold_time and zk_reserve()';
COMMENT ON COLUMN zk_locks.blocked_by_pid IS 'process of this server that is waited for';
COMMENT ON COLUMN zk_locks.blocked_by_node IS 'node of another server or client, or of a reservation, that is waited for';

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
	OUT max_locks integer,
	OUT locks_in_use integer,
	OUT obstacle text,
	OUT last_error text,
	OUT last_error_at timestamptz,
	OUT requests bigint,
	OUT request_time interval,
	OUT request_errors bigint)
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
COMMENT ON COLUMN zk_session.max_locks IS 'how many locks can be held and waited for at once in this server';
COMMENT ON COLUMN zk_session.locks_in_use IS 'how many of these are held, waited for, or being released';
COMMENT ON COLUMN zk_session.obstacle IS 'why no lock is granted now; NULL if nothing is in the way';
COMMENT ON COLUMN zk_session.last_error IS 'last trouble with ZooKeeper';
COMMENT ON COLUMN zk_session.last_error_at IS 'when that was';
COMMENT ON COLUMN zk_session.requests IS 'requests to ZooKeeper since the server started, with heartbeats';
COMMENT ON COLUMN zk_session.request_time IS 'how long these took, all together';
COMMENT ON COLUMN zk_session.request_errors IS 'of these: refused, or never answered';

/* Who holds and who waits, whatever client it is */
CREATE FUNCTION zk_contenders(
	path text,
	OUT path text,
	OUT "position" integer,
	OUT node text,
	OUT kind text,
	OUT mode text,
	OUT dialect text,
	OUT granted boolean,
	OUT fencing_token bigint,
	OUT server text,
	OUT pid integer,
	OUT usename text,
	OUT application_name text,
	OUT owner text,
	OUT owner_session text,
	OUT created timestamptz,
	OUT granted_at timestamptz,
	OUT heeds_us boolean,
	OUT persistent boolean,
	OUT kept boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_contenders'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_contenders(text) IS
'who holds and who waits at a path, or with /* at its end on all paths below, of all servers and clients, in the order of the queue';

/* What all servers publish of waits that last */
CREATE FUNCTION zk_waits(
	OUT server text,
	OUT pid integer,
	OUT usename text,
	OUT application_name text,
	OUT path text,
	OUT mode text,
	OUT waits_for text,
	OUT wait_start timestamptz,
	OUT node text,
	OUT blocked_by_server text,
	OUT blocked_by_pid integer,
	OUT blocked_by_owner text,
	OUT blocked_by_node text,
	OUT blocked_by_session text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_waits'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_waits() IS
'waits that last, as all servers publish them, and who is in their way';

/* Statistics */
CREATE FUNCTION zk_stats(
	OUT kind text,
	OUT mode text,
	OUT acquisitions bigint,
	OUT reentrant bigint,
	OUT handed_over bigint,
	OUT waits bigint,
	OUT wait_time interval,
	OUT hold_time interval,
	OUT timeouts bigint,
	OUT busy bigint,
	OUT cancels bigint,
	OUT deadlocks bigint,
	OUT failures bigint,
	OUT losses bigint,
	OUT kept integer,
	OUT kept_grants bigint,
	OUT kept_visited bigint,
	OUT kept_expired bigint,
	OUT kept_crowded bigint,
	OUT wait_histogram bigint[],
	OUT wait_bounds double precision[],
	OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_stats'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 6;
COMMENT ON FUNCTION zk_stats() IS 'what this server has locked and waited for; see view zk_stats';

CREATE VIEW zk_stats AS SELECT * FROM zk_stats();
COMMENT ON VIEW zk_stats IS 'what this server has locked and waited for, by kind and mode';
COMMENT ON COLUMN zk_stats.kind IS 'lock, semaphore, queue, election or claim';
COMMENT ON COLUMN zk_stats.mode IS 'of a lock: exclusive or shared';
COMMENT ON COLUMN zk_stats.acquisitions IS 'how often it was acquired: a lock, a permit, an element, leadership by a call that awaits it, a slot';
COMMENT ON COLUMN zk_stats.reentrant IS 'of these: by a session that held it already';
COMMENT ON COLUMN zk_stats.handed_over IS 'of these: behind a node that had served another session of this server';
COMMENT ON COLUMN zk_stats.waits IS 'waits for an answer that have ended, in whatever way';
COMMENT ON COLUMN zk_stats.wait_time IS 'how long these were, all together';
COMMENT ON COLUMN zk_stats.hold_time IS 'how long it was held, all together, until it was released; for an election, how long this server led';
COMMENT ON COLUMN zk_stats.timeouts IS 'waits that a timeout ended: the call''s own, or lock_timeout';
COMMENT ON COLUMN zk_stats.busy IS 'calls that do not wait and found it taken, the queue empty, or the slot claimed';
COMMENT ON COLUMN zk_stats.cancels IS 'waits that were cancelled, or ended with their session';
COMMENT ON COLUMN zk_stats.deadlocks IS 'waits that ended because of a deadlock';
COMMENT ON COLUMN zk_stats.failures IS 'waits that ended with any other error';
COMMENT ON COLUMN zk_stats.losses IS 'how often a session lost what it held, or this server leadership';
COMMENT ON COLUMN zk_stats.kept IS 'exclusive locks whose nodes are kept now though nobody has them; see zklock.keep_idle';
COMMENT ON COLUMN zk_stats.kept_grants IS 'of the acquisitions: by a node that was kept, without a request to ZooKeeper';
COMMENT ON COLUMN zk_stats.kept_visited IS 'kept nodes that were given up because another server or client came';
COMMENT ON COLUMN zk_stats.kept_expired IS 'kept nodes that were given up because nobody came within zklock.keep_idle';
COMMENT ON COLUMN zk_stats.kept_crowded IS 'kept nodes that were given up for others, for want of room';
COMMENT ON COLUMN zk_stats.wait_histogram IS 'waits by how long they were';
COMMENT ON COLUMN zk_stats.wait_bounds IS 'what the waits in each element of wait_histogram do not reach, in seconds; the last is infinity';
COMMENT ON COLUMN zk_stats.stats_reset IS 'counted since then';

CREATE FUNCTION zk_stats_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'zk_stats_reset'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_stats_reset() IS 'lets all counts of zk_stats begin at 0 again';

CREATE FUNCTION zk_release_kept()
RETURNS integer
AS 'MODULE_PATHNAME', 'zk_release_kept'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_release_kept() IS
'has all nodes deleted that are kept though nobody has their locks, and returns how many there are';

/*
 * Fencing.  zk_fences has to survive what the data it protects survives, so it
 * is dumped.  Collation "C" has no versions: an index on another one could
 * break with the operating system's next release, and forget a token.
 *
 * zk_fence() writes it with the rights of its owner, and so would whatever others could
 * attach to the table.  So it is in a schema where nobody else can create anything, which
 * no GRANT ON ALL TABLES IN SCHEMA of an application's reaches.  The schema must not exist:
 * nothing in it would be known to be the extension's.
 */
CREATE SCHEMA zk_fencing;
COMMENT ON SCHEMA zk_fencing IS 'fencing tokens that zk_fence() has seen';

CREATE TABLE zk_fencing.zk_fences (
	path text COLLATE "C" PRIMARY KEY,
	token bigint NOT NULL,
	fenced_at timestamptz NOT NULL,
	fenced_by text NOT NULL);
COMMENT ON TABLE zk_fencing.zk_fences IS
'highest fencing token seen for each ZooKeeper path, by zk_fence()';
COMMENT ON COLUMN zk_fencing.zk_fences.path IS 'ZooKeeper path';
COMMENT ON COLUMN zk_fencing.zk_fences.token IS 'highest fencing token seen';
COMMENT ON COLUMN zk_fencing.zk_fences.fenced_at IS 'when a transaction last fenced the path';
COMMENT ON COLUMN zk_fencing.zk_fences.fenced_by IS 'whose session that was';
SELECT pg_catalog.pg_extension_config_dump('zk_fencing.zk_fences', '');

CREATE FUNCTION zk_fence(path text, token bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_fence'
LANGUAGE C VOLATILE PARALLEL UNSAFE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION zk_fence(text, bigint) IS
'refuse a fencing token that is older than one seen in this database; holds back other tokens until the transaction ends';

/*
 * Fences of one database never change another's: rows that logical replication
 * brings (FOR ALL TABLES includes the table), initial copy included, are
 * dropped.  Dump, restore and pg_upgrade are no replication.  No trigger can drop
 * a replicated TRUNCATE, so nobody has the privilege for one.
 *
 * Nor does anybody change fences but zk_fence() and the table's owner, whatever is granted.
 * Whoever is granted TRIGGER may replace these triggers, but not by one that fires ALWAYS:
 * by that zk_fence() knows them.
 */
CREATE FUNCTION zk_fencing.protect()
RETURNS trigger
AS 'MODULE_PATHNAME', 'zk_fences_protect'
LANGUAGE C;
COMMENT ON FUNCTION zk_fencing.protect() IS
'trigger that keeps table zk_fences from others and from what is replicated from another database';

CREATE TRIGGER protect BEFORE INSERT OR UPDATE OR DELETE ON zk_fencing.zk_fences
	FOR EACH ROW EXECUTE FUNCTION zk_fencing.protect();
CREATE TRIGGER protect_all BEFORE TRUNCATE ON zk_fencing.zk_fences
	FOR EACH STATEMENT EXECUTE FUNCTION zk_fencing.protect();
ALTER TABLE zk_fencing.zk_fences ENABLE ALWAYS TRIGGER protect, ENABLE ALWAYS TRIGGER protect_all;

/*
 * Administration.  It reaches into other servers' and clients' locks: for superusers
 * and members of pg_signal_backend, which the function checks, whatever is granted.
 */
CREATE FUNCTION zk_break_lock(path text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_break_lock'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_break_lock(text) IS
'takes a lock, permits or leadership from those who have it: deletes their nodes';

CREATE FUNCTION zk_break_lock(path text, node text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_break_lock_node'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_break_lock(text, text) IS
'takes a lock from its holder, or a waiter out of its queue: deletes the node of a contender as zk_contenders() shows it';

/*
 * Privileges.  At first only the owner has any, whatever the default privileges of the
 * database and of its schemas grant or revoke.  Names mean PostgreSQL's own objects here:
 * of the operators of two schemas, that whose types fit better would be taken.
 */
DO $$
DECLARE
	path constant text := pg_catalog.current_setting('search_path');
	member record;
BEGIN
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	FOR member IN
		SELECT kind, name, string_agg(DISTINCT ', ' || quote_ident(pg_get_userbyid(grantee)), '') AS grantees
		FROM pg_extension e
			JOIN pg_depend d ON refclassid = 'pg_extension'::regclass AND refobjid = e.oid AND deptype = 'e'
			CROSS JOIN LATERAL (
				SELECT 'FUNCTION', oid::regprocedure::text, proacl FROM pg_proc
				WHERE classid = 'pg_proc'::regclass AND oid = objid
				UNION ALL SELECT 'TABLE', oid::regclass::text, relacl FROM pg_class
				WHERE classid = 'pg_class'::regclass AND oid = objid
				UNION ALL SELECT 'SCHEMA', oid::regnamespace::text, nspacl FROM pg_namespace
				WHERE classid = 'pg_namespace'::regclass AND oid = objid
			) object (kind, name, acl)
			LEFT JOIN LATERAL aclexplode(acl) ON grantee <> 0
		WHERE extname = 'zklock'
		GROUP BY kind, name
	LOOP
		EXECUTE format('REVOKE ALL ON %s %s FROM PUBLIC, CURRENT_USER%s', member.kind, member.name, member.grantees);
		EXECUTE format('GRANT ALL ON %s %s TO CURRENT_USER', member.kind, member.name);
	END LOOP;
	PERFORM set_config('search_path', path, true);
END
$$;

/*
 * Every lock is load on a service others depend on, and what is claimed, taken or offered
 * is not undone: the administrator says who may.  What is everyone's business is like
 * PostgreSQL's own locks and statistics.  Each view is for those who may call its function.
 */
GRANT SELECT ON zk_locks, zk_stats, zk_session, zk_elections TO PUBLIC;
GRANT EXECUTE ON FUNCTION zk_locks(), zk_stats() TO PUBLIC;

/* What services are called, what they write into their nodes, and roles and paths of others */
GRANT EXECUTE ON FUNCTION zk_session(), zk_elections(), zk_leader(text), zk_last_claim(text), zk_contenders(text),
	zk_waits(), zk_queue_length(text), zk_queue_elements(text)
TO pg_monitor;
GRANT EXECUTE ON FUNCTION zk_resign(text), zk_break_lock(text), zk_break_lock(text, text), zk_release_kept()
TO pg_signal_backend;

/* The database's owner reads what pg_dump dumps. */
GRANT USAGE ON SCHEMA zk_fencing TO pg_monitor, pg_database_owner;
GRANT SELECT ON zk_fencing.zk_fences TO pg_monitor, pg_database_owner;
REVOKE TRUNCATE ON zk_fencing.zk_fences FROM CURRENT_USER;

/* Whoever creates the extension hears at once what would otherwise be silence at the first lock. */
DO $$
DECLARE
	session record;
BEGIN
	SELECT state, last_error INTO session FROM @extschema@.zk_session;
	IF session.state OPERATOR(pg_catalog.<>) text 'connected' THEN
		RAISE WARNING 'zklock is not connected to ZooKeeper: %', pg_catalog.concat_ws(', ', session.state, session.last_error)
			USING HINT = 'Check "zklock.servers", then see view zk_session, and the server log.';
	END IF;
EXCEPTION WHEN object_not_in_prerequisite_state THEN
	RAISE WARNING 'zklock cannot lock anything yet: %', SQLERRM
		USING HINT = 'Set shared_preload_libraries = ''zklock'' and "zklock.servers" in postgresql.conf, and restart the server.';
END
$$;
