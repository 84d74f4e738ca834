/* zklock--1.0--1.1.sql */

-- complain if the script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION zklock UPDATE TO '1.1'" to load this file. \quit

/*
 * Everyone may look at zk_locks, as at pg_locks; the function shows of others'
 * locks what is nobody's secret.
 */
GRANT EXECUTE ON FUNCTION zk_locks() TO PUBLIC;
GRANT SELECT ON zk_locks TO PUBLIC;

/*
 * More columns for zk_session.  They come from a function of their own: the old
 * one cannot get any unless it is dropped, and with it what users have built on
 * it or on the view, and the privileges they have granted.  For the sake of
 * these the new one is everybody's; that there is room for locks, and what is
 * in their way, every caller of zk_lock() is told anyway.
 */
CREATE FUNCTION zk_availability(
	OUT max_locks integer,
	OUT locks_in_use integer,
	OUT obstacle text)
RETURNS record
AS 'MODULE_PATHNAME', 'zk_availability'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_availability() IS
'room for locks in this server, and why none is granted now; see view zk_session';

CREATE OR REPLACE VIEW zk_session AS
	SELECT s.state, s.server, s.session_id, s.negotiated_timeout, s.lease_remaining, s.connected_since,
		s.worker_pid, s.reconnects, s.expirations, s.last_error, s.last_error_at,
		a.max_locks, a.locks_in_use, a.obstacle
	FROM zk_session() s, zk_availability() a;
COMMENT ON COLUMN zk_session.max_locks IS 'how many locks can be held and waited for at once in this server';
COMMENT ON COLUMN zk_session.locks_in_use IS 'how many of these are held, waited for, or being released';
COMMENT ON COLUMN zk_session.obstacle IS 'why no lock is granted now; NULL if nothing is in the way';

/*
 * Fences of one database never change another's: rows that logical replication
 * brings (FOR ALL TABLES includes the table), initial copy included, are
 * dropped.  Dump, restore and pg_upgrade are no replication.
 */
CREATE FUNCTION zk_fences_keep_local()
RETURNS trigger
AS 'MODULE_PATHNAME', 'zk_fences_keep_local'
LANGUAGE C;
COMMENT ON FUNCTION zk_fences_keep_local() IS
'trigger that drops what is replicated to table zk_fences from another database';
REVOKE ALL ON FUNCTION zk_fences_keep_local() FROM PUBLIC;

CREATE TRIGGER keep_local BEFORE INSERT OR UPDATE OR DELETE ON zk_fences
	FOR EACH ROW EXECUTE FUNCTION zk_fences_keep_local();
CREATE TRIGGER keep_local_before_truncate BEFORE TRUNCATE ON zk_fences
	FOR EACH STATEMENT EXECUTE FUNCTION zk_fences_keep_local();
CREATE TRIGGER keep_local_after_truncate AFTER TRUNCATE ON zk_fences
	FOR EACH STATEMENT EXECUTE FUNCTION zk_fences_keep_local();
ALTER TABLE zk_fences
	ENABLE REPLICA TRIGGER keep_local,
	ENABLE REPLICA TRIGGER keep_local_before_truncate,
	ENABLE REPLICA TRIGGER keep_local_after_truncate;

/*
 * Who holds and who waits, whatever client it is.  What other services are
 * called, and what they write into their nodes, is for monitoring.
 */
CREATE FUNCTION zk_contenders(
	path text,
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
	OUT heeds_us boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'zk_contenders'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_contenders(text) IS
'who holds and who waits at a path, of all servers and clients, in the order of the queue';
REVOKE ALL ON FUNCTION zk_contenders(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zk_contenders(text) TO pg_monitor;

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
REVOKE ALL ON FUNCTION zk_queue_offer(text, bytea) FROM PUBLIC;

CREATE FUNCTION zk_queue_element(path text)
RETURNS bytea
AS 'MODULE_PATHNAME', 'zk_queue_element'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_queue_element(text) IS
'the first element of a ZooKeeper queue, which stays there; NULL if there is none';
REVOKE ALL ON FUNCTION zk_queue_element(text) FROM PUBLIC;

CREATE FUNCTION zk_queue_remove(path text)
RETURNS bytea
AS 'MODULE_PATHNAME', 'zk_queue_remove'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_queue_remove(text) IS
'remove the first element of a ZooKeeper queue; NULL if there is none';
REVOKE ALL ON FUNCTION zk_queue_remove(text) FROM PUBLIC;

CREATE FUNCTION zk_queue_take(path text, timeout interval DEFAULT NULL)
RETURNS bytea
AS 'MODULE_PATHNAME', 'zk_queue_take'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_queue_take(text, interval) IS
'remove the first element of a ZooKeeper queue, waiting for one; NULL if the timeout has passed';
REVOKE ALL ON FUNCTION zk_queue_take(text, interval) FROM PUBLIC;

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
REVOKE ALL ON FUNCTION zk_xact_queue_take(text, interval) FROM PUBLIC;
