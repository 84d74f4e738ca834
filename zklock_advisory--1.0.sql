/* zklock_advisory--1.0.sql */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION zklock_advisory" to load this file. \quit

/*
 * Programs find this schema before pg_catalog.  What others create here would
 * take the place of PostgreSQL's own, so the schema must not exist, and only its
 * owner may create in it.
 */
CREATE SCHEMA zk_advisory;
COMMENT ON SCHEMA zk_advisory IS 'PostgreSQL''s advisory lock functions, over all servers';

/*
 * For each of PostgreSQL's functions one of the same name, with the same
 * arguments, result and properties.  Each name has its schema: without one it
 * would be PostgreSQL's function that is commented on and revoked.
 */
CREATE FUNCTION zk_advisory.pg_advisory_lock(bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_lock'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_lock(bigint) IS
'acquire an exclusive session-level advisory lock over all servers';

CREATE FUNCTION zk_advisory.pg_advisory_lock(integer, integer)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_lock'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_lock(integer, integer) IS
'acquire an exclusive session-level advisory lock over all servers';

CREATE FUNCTION zk_advisory.pg_advisory_lock_shared(bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_lock_shared'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_lock_shared(bigint) IS
'acquire a shared session-level advisory lock over all servers';

CREATE FUNCTION zk_advisory.pg_advisory_lock_shared(integer, integer)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_lock_shared'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_lock_shared(integer, integer) IS
'acquire a shared session-level advisory lock over all servers';

CREATE FUNCTION zk_advisory.pg_advisory_xact_lock(bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_xact_lock'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_xact_lock(bigint) IS
'acquire an exclusive transaction-level advisory lock over all servers';

CREATE FUNCTION zk_advisory.pg_advisory_xact_lock(integer, integer)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_xact_lock'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_xact_lock(integer, integer) IS
'acquire an exclusive transaction-level advisory lock over all servers';

CREATE FUNCTION zk_advisory.pg_advisory_xact_lock_shared(bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_xact_lock_shared'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_xact_lock_shared(bigint) IS
'acquire a shared transaction-level advisory lock over all servers';

CREATE FUNCTION zk_advisory.pg_advisory_xact_lock_shared(integer, integer)
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_xact_lock_shared'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_xact_lock_shared(integer, integer) IS
'acquire a shared transaction-level advisory lock over all servers';

CREATE FUNCTION zk_advisory.pg_try_advisory_lock(bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_lock'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_try_advisory_lock(bigint) IS
'acquire an exclusive session-level advisory lock over all servers if it is free';

CREATE FUNCTION zk_advisory.pg_try_advisory_lock(integer, integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_lock'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_try_advisory_lock(integer, integer) IS
'acquire an exclusive session-level advisory lock over all servers if it is free';

CREATE FUNCTION zk_advisory.pg_try_advisory_lock_shared(bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_lock_shared'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_try_advisory_lock_shared(bigint) IS
'acquire a shared session-level advisory lock over all servers if nobody has or wants it exclusively';

CREATE FUNCTION zk_advisory.pg_try_advisory_lock_shared(integer, integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_lock_shared'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_try_advisory_lock_shared(integer, integer) IS
'acquire a shared session-level advisory lock over all servers if nobody has or wants it exclusively';

CREATE FUNCTION zk_advisory.pg_try_advisory_xact_lock(bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_xact_lock'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_try_advisory_xact_lock(bigint) IS
'acquire an exclusive transaction-level advisory lock over all servers if it is free';

CREATE FUNCTION zk_advisory.pg_try_advisory_xact_lock(integer, integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_xact_lock'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_try_advisory_xact_lock(integer, integer) IS
'acquire an exclusive transaction-level advisory lock over all servers if it is free';

CREATE FUNCTION zk_advisory.pg_try_advisory_xact_lock_shared(bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_xact_lock_shared'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_try_advisory_xact_lock_shared(bigint) IS
'acquire a shared transaction-level advisory lock over all servers if nobody has or wants it exclusively';

CREATE FUNCTION zk_advisory.pg_try_advisory_xact_lock_shared(integer, integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_try_advisory_xact_lock_shared'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_try_advisory_xact_lock_shared(integer, integer) IS
'acquire a shared transaction-level advisory lock over all servers if nobody has or wants it exclusively';

CREATE FUNCTION zk_advisory.pg_advisory_unlock(bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_unlock'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_unlock(bigint) IS
'release one exclusive session-level advisory lock over all servers; false if it was not held';

CREATE FUNCTION zk_advisory.pg_advisory_unlock(integer, integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_unlock'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_unlock(integer, integer) IS
'release one exclusive session-level advisory lock over all servers; false if it was not held';

CREATE FUNCTION zk_advisory.pg_advisory_unlock_shared(bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_unlock_shared'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_unlock_shared(bigint) IS
'release one shared session-level advisory lock over all servers; false if it was not held';

CREATE FUNCTION zk_advisory.pg_advisory_unlock_shared(integer, integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'zk_advisory_unlock_shared'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_unlock_shared(integer, integer) IS
'release one shared session-level advisory lock over all servers; false if it was not held';

CREATE FUNCTION zk_advisory.pg_advisory_unlock_all()
RETURNS void
AS 'MODULE_PATHNAME', 'zk_advisory_unlock_all'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION zk_advisory.pg_advisory_unlock_all() IS
'release all session-level advisory locks over all servers that this session has';

/*
 * PostgreSQL's view, with the advisory locks over all servers that sessions of this
 * server have and wait for, as PostgreSQL shows its own.  A path tells the key:
 * one number, or two.  Other databases' keys are where they are by default, or,
 * if this session has the setting, where that says.
 */
CREATE VIEW zk_advisory.pg_locks AS
	SELECT * FROM pg_catalog.pg_locks
	UNION ALL
	SELECT 'advisory', database, NULL, NULL, NULL, NULL, NULL,
		(CASE WHEN key2 IS NULL THEN key1::bigint >> 32 ELSE key1::bigint END & 4294967295)::oid,
		(coalesce(key2, key1)::bigint & 4294967295)::oid,
		(CASE WHEN key2 IS NULL THEN 1 ELSE 2 END)::smallint, NULL, pid,
		CASE mode WHEN 'exclusive' THEN 'ExclusiveLock' ELSE 'ShareLock' END, granted, false, wait_start
	FROM (
		SELECT DISTINCT d.oid AS database, part[2]::numeric AS key1, part[3]::numeric AS key2,
			l.pid, l.mode, l.granted, l.wait_start
		FROM zk_locks l JOIN pg_catalog.pg_database d USING (datname)
			CROSS JOIN pg_catalog.regexp_match(l.path, '^(.*)/(0|-?[1-9][0-9]{0,18})(?:,(0|-?[1-9][0-9]{0,9}))?$') part
		WHERE l.kind = 'lock' AND (l.granted OR l.state IN ('requested', 'waiting'))
			AND part[1] = coalesce(nullif(pg_catalog.current_setting('zklock.advisory_path', true), ''),
				'/advisory/'::text || datname::text)
	) l
	WHERE CASE WHEN key2 IS NULL THEN key1 BETWEEN numeric '-9223372036854775808' AND numeric '9223372036854775807'
		ELSE key1 BETWEEN numeric '-2147483648' AND numeric '2147483647'
			AND key2 BETWEEN numeric '-2147483648' AND numeric '2147483647' END;
COMMENT ON VIEW zk_advisory.pg_locks IS
'locks of this server, as pg_catalog.pg_locks shows them, and its advisory locks over all servers';

/*
 * Privileges.  Every lock is load on a service others depend on: only the owner has any,
 * whatever the default privileges of the database grant or revoke.  Names mean PostgreSQL's
 * own objects here: of the operators of two schemas, that whose types fit better would be
 * taken.
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
		WHERE extname = 'zklock_advisory'
		GROUP BY kind, name
	LOOP
		EXECUTE format('REVOKE ALL ON %s %s FROM PUBLIC, CURRENT_USER%s', member.kind, member.name, member.grantees);
		EXECUTE format('GRANT ALL ON %s %s TO CURRENT_USER', member.kind, member.name);
	END LOOP;
	PERFORM set_config('search_path', path, true);
END
$$;
