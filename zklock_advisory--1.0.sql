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
 * What takes PostgreSQL's own advisory locks all the same, as far as this database's catalogs show it:
 * what names the functions with pg_catalog, or with a search_path of its own; what was parsed
 * before, or with another search_path, whose parse tree has the function's OID; and roles whose
 * search_path does not lead here.
 *
 * The dependencies do not show it: PostgreSQL records none on what it is delivered with.
 */
CREATE VIEW zk_advisory.escapes AS
	WITH leads_here (pattern) AS (
		/* of a search_path: zk_advisory comes before pg_catalog, which comes first if it is not named */
		VALUES ('^(?!.*\mpg_catalog\M.*\mzk_advisory\M).*\mzk_advisory\M.*\mpg_catalog\M'::text)
	), own AS (
		SELECT oid FROM pg_catalog.pg_proc
		WHERE pronamespace OPERATOR(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace AND proname::text ~ '^pg_(try_)?advisory_'::text
	), parsed (classid, objid, objsubid, tree) AS (
		SELECT 'pg_catalog.pg_proc'::pg_catalog.regclass, oid, 0, prosqlbody::text FROM pg_catalog.pg_proc
		UNION ALL
		SELECT CASE WHEN rulename::text = '_RETURN'::text THEN 'pg_catalog.pg_class' ELSE 'pg_catalog.pg_rewrite' END::pg_catalog.regclass,
			CASE WHEN rulename::text = '_RETURN'::text THEN ev_class ELSE oid END, 0, pg_catalog.concat(ev_qual::text, ev_action::text)
		FROM pg_catalog.pg_rewrite
		UNION ALL SELECT 'pg_catalog.pg_attrdef'::pg_catalog.regclass, oid, 0, adbin::text FROM pg_catalog.pg_attrdef
		UNION ALL SELECT 'pg_catalog.pg_constraint'::pg_catalog.regclass, oid, 0, conbin::text FROM pg_catalog.pg_constraint
		UNION ALL SELECT 'pg_catalog.pg_type'::pg_catalog.regclass, oid, 0, typdefaultbin::text FROM pg_catalog.pg_type
		UNION ALL SELECT 'pg_catalog.pg_trigger'::pg_catalog.regclass, oid, 0, tgqual::text FROM pg_catalog.pg_trigger
		UNION ALL
		SELECT 'pg_catalog.pg_policy'::pg_catalog.regclass, oid, 0, pg_catalog.concat(polqual::text, polwithcheck::text)
		FROM pg_catalog.pg_policy
		UNION ALL
		SELECT 'pg_catalog.pg_class'::pg_catalog.regclass, indexrelid, 0, pg_catalog.concat(indexprs::text, indpred::text)
		FROM pg_catalog.pg_index
	), named AS (
		SELECT p.oid, p.prosrc ~* '"?\mpg_catalog\M"?\s*\.\s*"?pg_(try_)?advisory_'::text AS qualified, path.setting
		FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang
			LEFT JOIN LATERAL (
				SELECT pg_catalog.substr(item, 13) FROM pg_catalog.unnest(p.proconfig) item WHERE item ~ '^search_path='::text
			) path (setting) ON true
		WHERE l.lanname::text <> ALL ('{internal,c}'::text[]) AND p.prosrc ~* '\mpg_(try_)?advisory_(xact_)?(un)?lock'::text
	), logins AS (
		SELECT r.oid, r.rolname, coalesce(found.setting, CASE WHEN s.source = ANY ('{default,configuration file}'::text[])
			THEN s.reset_val ELSE s.boot_val END) AS setting
		FROM pg_catalog.pg_roles r
			JOIN pg_catalog.pg_settings s ON s.name = 'search_path'::text
			LEFT JOIN LATERAL (
				SELECT pg_catalog.substr(item, 13)
				FROM pg_catalog.pg_db_role_setting d CROSS JOIN pg_catalog.unnest(d.setconfig) item
				WHERE item ~ '^search_path='::text AND d.setrole OPERATOR(pg_catalog.=) ANY (ARRAY[r.oid, 0::oid])
					AND d.setdatabase OPERATOR(pg_catalog.=) ANY (ARRAY[0::oid,
						(SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())])
				ORDER BY d.setrole OPERATOR(pg_catalog.=) 0, d.setdatabase OPERATOR(pg_catalog.=) 0 LIMIT 1
			) found (setting) ON true
		WHERE r.rolcanlogin
	)
	SELECT identity.type AS kind, identity.identity AS object,
		'it was parsed when the name meant PostgreSQL''s own function'::text AS reason
	FROM parsed CROSS JOIN LATERAL pg_catalog.pg_identify_object(classid, objid, objsubid) identity
	WHERE tree ~ (SELECT pg_catalog.format(':funcid (%s)\M', pg_catalog.string_agg(oid::text, '|'::text)) FROM own)
	UNION ALL
	SELECT identity.type, identity.identity, CASE WHEN qualified THEN 'it names pg_catalog'::text
		ELSE pg_catalog.format('its search_path does not lead to zk_advisory: %s', setting) END
	FROM named CROSS JOIN LATERAL pg_catalog.pg_identify_object('pg_catalog.pg_proc'::pg_catalog.regclass, oid, 0) identity
	WHERE qualified OR setting !~ (SELECT pattern FROM leads_here)
	UNION ALL
	SELECT 'role', pg_catalog.quote_ident(rolname::text),
		CASE WHEN setting !~ (SELECT pattern FROM leads_here)
			THEN pg_catalog.format('its search_path does not lead to zk_advisory: %s', setting)
			ELSE 'it has no USAGE on schema zk_advisory, which PostgreSQL passes over then'::text END
	FROM logins
	WHERE setting !~ (SELECT pattern FROM leads_here) OR NOT pg_catalog.has_schema_privilege(oid, 'zk_advisory', 'USAGE');
COMMENT ON VIEW zk_advisory.escapes IS
'what in this database takes PostgreSQL''s own advisory locks all the same';

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
