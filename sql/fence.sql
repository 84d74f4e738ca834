-- Fencing: zk_fence() refuses tokens that are older than one it has seen.
\t on
\a
SELECT current_user AS superuser \gset
SELECT proparallel, provolatile, prosecdef, proconfig, proisstrict FROM pg_proc WHERE proname = 'zk_fence';

-- what is no path, or no token
SELECT outcome('SELECT zk_fence(NULL, 1)');
SELECT outcome($$ SELECT zk_fence('/regress/fence', NULL) $$);
SELECT outcome('SELECT zk_fence(NULL, NULL)');
SELECT outcome($$ SELECT zk_fence('/regress/fence', 0) $$);
SELECT outcome($$ SELECT zk_fence('/regress/fence', -1) $$);
SELECT outcome($$ SELECT zk_fence('/regress/fence', -9223372036854775808) $$);
SELECT path FROM unnest(ARRAY['', 'regress', '/', '/regress//a', '/regress/', '/regress/..', '/zookeeper/a',
  '/regress/' || chr(10), '/regress/' || repeat('x', 1015)]) path
WHERE ARRAY(SELECT outcome(format('SELECT zk_fence(%L, 1)', path)))
  <> ARRAY(SELECT outcome(format('SELECT zk_lock(%L)', path)));
SELECT count(*) FROM zk_fencing.zk_fences;

-- higher and equal tokens pass, lower ones do not
SELECT zk_fence('/regress/fence', 1) IS NULL;
SELECT zk_fence('/regress/fence', 4097);
SELECT zk_fence('/regress/fence', 4097), zk_fence('/regress/fence', 4097);
SELECT outcome($$ SELECT zk_fence('/regress/fence', 4096) $$);
SELECT outcome($$ SELECT zk_fence('/regress/fence', 1) $$);
SELECT zk_fence('/regress/fence', 4098);
SELECT outcome($$ SELECT zk_fence('/regress/fence', 4097) $$);
SELECT path, token, fenced_at BETWEEN now() - interval '1 min' AND clock_timestamp(), fenced_by = session_user FROM zk_fencing.zk_fences;
-- once in a transaction is enough
BEGIN;
SELECT zk_fence('/regress/fence', 4098);
SELECT ctid AS row FROM zk_fencing.zk_fences \gset
SELECT count(zk_fence('/regress/fence', 4098)) FROM generate_series(1, 10);
SELECT zk_fence('/regress/fence', 4098);
SELECT ctid = :'row' FROM zk_fencing.zk_fences;
SAVEPOINT s;
SELECT count(zk_fence('/regress/fence', 4098)) FROM generate_series(1, 10);
SELECT ctid = :'row' FROM zk_fencing.zk_fences;
RELEASE s;
SAVEPOINT s;
SELECT zk_fence('/regress/fence/a', 1);
RELEASE s;
SELECT ctid AS row FROM zk_fencing.zk_fences WHERE path = '/regress/fence/a' \gset
SELECT count(zk_fence('/regress/fence/a', 1)) FROM generate_series(1, 10);
SELECT ctid = :'row' FROM zk_fencing.zk_fences WHERE path = '/regress/fence/a';
COMMIT;
-- each path has its own
SELECT zk_fence('/regress/fence/a', 7), zk_fence('/regress/Fence', 5), zk_fence('/regress/fénce', 6);
SELECT outcome($$ SELECT zk_fence('/regress/fence/a', 6) $$);
SELECT outcome($$ SELECT zk_fence('/regress/fénce', 5) $$);
SELECT path, token FROM zk_fencing.zk_fences ORDER BY path;
-- up to the last
SELECT zk_fence('/regress/fence/a', 9223372036854775807), zk_fence('/regress/fence/a', 9223372036854775807);
SELECT outcome($$ SELECT zk_fence('/regress/fence/a', 9223372036854775806) $$);
SELECT zk_fence('/regress/' || repeat('x', 1014), 3);
SELECT outcome(format($$ SELECT zk_fence(%L, 2) $$, '/regress/' || repeat('x', 1014))) LIKE '40001: %' AS stale LIMIT 1;
DELETE FROM zk_fencing.zk_fences WHERE path <> '/regress/fence';

-- several in one statement and in one transaction: each sees those before
SELECT zk_fence('/regress/fence', token) FROM generate_series(5000, 5003) token;
SELECT outcome($$ SELECT count(zk_fence('/regress/fence', token)) FROM generate_series(5005, 5004, -1) token $$);
BEGIN;
SELECT zk_fence('/regress/fence', 5003), zk_fence('/regress/fence', 5004), zk_fence('/regress/fence', 5004);
SELECT outcome($$ SELECT zk_fence('/regress/fence', 5003) $$);
COMMIT;

-- what is rolled back was not seen
BEGIN;
SELECT zk_fence('/regress/fence', 6000), zk_fence('/regress/fence_new', 6000);
ROLLBACK;
SELECT zk_fence('/regress/fence', 5005), zk_fence('/regress/fence_new', 1);
BEGIN;
SELECT zk_fence('/regress/fence', 5006);
SAVEPOINT s;
SELECT zk_fence('/regress/fence', 6000), zk_fence('/regress/fence_new', 6000);
ROLLBACK TO s;
SELECT zk_fence('/regress/fence', 5006), zk_fence('/regress/fence_new', 2);
SELECT outcome($$ SELECT zk_fence('/regress/fence', 5005) $$);
COMMIT;
SELECT path, token FROM zk_fencing.zk_fences ORDER BY path;

-- in all isolation levels
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT zk_fence('/regress/fence', 5007), zk_fence('/regress/fence_rr', 1), zk_fence('/regress/fence_rr', 1);
SELECT zk_fence('/regress/fence', 5008), zk_fence('/regress/fence_rr', 2);
SELECT outcome($$ SELECT zk_fence('/regress/fence', 5007) $$);
SELECT outcome($$ SELECT zk_fence('/regress/fence_rr', 1) $$);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT zk_fence('/regress/fence', 5008), zk_fence('/regress/fence', 5009), zk_fence('/regress/fence_s', 1);
SELECT outcome($$ SELECT zk_fence('/regress/fence', 5008) $$);
COMMIT;

-- a transaction that can write nothing has nothing to fence
BEGIN READ ONLY;
SELECT outcome($$ SELECT zk_fence('/regress/fence', 5009) $$);
SELECT outcome($$ SELECT zk_fence('/regress/fence', 1) $$);
COMMIT;
-- two-phase commit keeps the row locked, and the token
BEGIN;
SELECT zk_fence('/regress/fence', 5010);
PREPARE TRANSACTION 'regress_fence';
SET lock_timeout = '10ms';
SELECT outcome($$ SELECT zk_fence('/regress/fence', 5009) $$);
SELECT outcome($$ SELECT zk_fence('/regress/fence', 5011) $$);
RESET lock_timeout;
COMMIT PREPARED 'regress_fence';
SELECT outcome($$ SELECT zk_fence('/regress/fence', 5009) $$);

-- a lock's own token
SELECT zk_lock('/regress/fence_lock');
SELECT zk_fence('/regress/fence_lock', zk_fencing_token('/regress/fence_lock'));
SELECT zk_fencing_token('/regress/fence_lock') AS token \gset
SELECT zk_unlock('/regress/fence_lock'), zk_lock('/regress/fence_lock');
SELECT zk_fence('/regress/fence_lock', zk_fencing_token('/regress/fence_lock'));
SELECT left(outcome(format('SELECT zk_fence(%L, %s)', '/regress/fence_lock', :token)), 5) LIMIT 1;
SELECT zk_unlock('/regress/fence_lock');
DELETE FROM zk_fencing.zk_fences;
-- the holder is told of a token that ZooKeeper cannot have given yet: where it is, and what to do
SELECT zk_fence('/regress/fence_lock', 9200000000000000000);
SELECT zk_lock('/regress/fence_lock');
SELECT zk_fencing_token('/regress/fence_lock') AS token \gset
SELECT replace(outcome(format('SELECT zk_fence(%L, %s)', '/regress/fence_lock', :token)), :'token', '<token>');
-- who does not hold the lock cannot know, but where to look
SELECT zk_unlock('/regress/fence_lock');
SELECT replace(outcome(format('SELECT zk_fence(%L, %s)', '/regress/fence_lock', :token)), :'token', '<token>');
-- when the row is deleted, the holder goes on
DELETE FROM zk_fencing.zk_fences;
SELECT zk_lock('/regress/fence_lock');
SELECT zk_fencing_token('/regress/fence_lock') AS token \gset
SELECT zk_fence('/regress/fence_lock', :token);
-- a token above that of the lock that the session holds is refused, and not remembered
SELECT zk_lock('/regress/fence_later');
SELECT zk_fencing_token('/regress/fence_later') AS later \gset
SELECT replace(replace(outcome(format('SELECT zk_fence(%L, %s)', '/regress/fence_lock', high)),
  :'token', '<token>'), :'later', '<later>') FROM unnest(ARRAY[:later, 9200000000000000000]) high;
SELECT path, token = :token FROM zk_fencing.zk_fences;
-- a shared lock proves nothing: a higher token may be that of another holder, and the own one stale
SELECT zk_unlock('/regress/fence_lock'), zk_lock_shared('/regress/fence_lock');
SELECT zk_fencing_token('/regress/fence_lock') AS token \gset
SELECT zk_fence('/regress/fence_lock', :token + 1);
SELECT left(outcome(format('SELECT zk_fence(%L, %s)', '/regress/fence_lock', :token)), 5) LIMIT 1;
SELECT zk_unlock_all();
DELETE FROM zk_fencing.zk_fences;

-- a session that replays what another database has done changes nothing, but by the function
SELECT zk_fence('/regress/fence', 62);
SELECT pg_replication_origin_create('regress_fence') IS NOT NULL;
SELECT pg_replication_origin_session_setup('regress_fence');
SET session_replication_role = replica;
INSERT INTO zk_fencing.zk_fences VALUES ('/regress/fence_new', 1, now(), 'x');
UPDATE zk_fencing.zk_fences SET token = 1;
DELETE FROM zk_fencing.zk_fences;
SELECT path, token FROM zk_fencing.zk_fences;
SELECT zk_fence('/regress/fence', 63);
SELECT path, token FROM zk_fencing.zk_fences;
RESET session_replication_role;
SELECT pg_replication_origin_session_reset();
SELECT pg_replication_origin_drop('regress_fence');
DELETE FROM zk_fencing.zk_fences;

-- nobody has the privilege to truncate the table, not even the owner, but for being a superuser
SELECT bool_or(privilege_type = 'TRUNCATE') FROM pg_class, aclexplode(relacl) WHERE oid = 'zk_fencing.zk_fences'::regclass;
-- the table is nobody's, but for monitoring; the function is for whom it is granted to
CREATE ROLE regress_fence_plain LOGIN;
CREATE ROLE regress_fence_user LOGIN;
CREATE ROLE regress_fence_monitor LOGIN IN ROLE pg_monitor;
GRANT EXECUTE ON FUNCTION zk_fence(text, bigint) TO regress_fence_user;
SELECT role, privilege FROM unnest(ARRAY['regress_fence_plain', 'regress_fence_user', 'regress_fence_monitor']) role,
  unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) privilege
WHERE has_table_privilege(role, 'zk_fencing.zk_fences', privilege)
  OR privilege IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES') AND has_any_column_privilege(role, 'zk_fencing.zk_fences', privilege);
SET ROLE regress_fence_plain;
SELECT outcome($$ SELECT zk_fence('/regress/fence', 1) $$);
SELECT outcome('SELECT count(*) FROM zk_fencing.zk_fences');
SET ROLE regress_fence_monitor;
SELECT outcome($$ SELECT zk_fence('/regress/fence', 1) $$);
SELECT outcome('SELECT count(*) FROM zk_fencing.zk_fences');
SELECT outcome('DELETE FROM zk_fencing.zk_fences');
RESET ROLE;
ALTER ROLE regress_fence_user SET zklock.allowed_paths = '/regress/mine/*';
\c - regress_fence_user
SELECT outcome($$ SELECT zk_fence('/regress/mine/a', 3) $$);
SELECT outcome($$ SELECT zk_fence('/regress/mine/a', 2) $$);
SELECT outcome($$ SELECT zk_fence('/regress/fence', 1) $$);
SELECT outcome('SELECT count(*) FROM zk_fencing.zk_fences');
SELECT outcome($$ INSERT INTO zk_fencing.zk_fences VALUES ('/regress/mine/b', 1, now(), '') $$);
SELECT outcome('UPDATE zk_fencing.zk_fences SET token = 1');
SELECT outcome('DELETE FROM zk_fencing.zk_fences');
SELECT outcome('TRUNCATE zk_fencing.zk_fences');
SELECT outcome('LOCK TABLE zk_fencing.zk_fences IN ACCESS SHARE MODE');
SELECT outcome('CREATE RULE r AS ON INSERT TO zk_fencing.zk_fences DO INSTEAD NOTHING');

\c - :superuser
-- names that a caller makes lead nowhere: tables, functions, operators
GRANT CREATE ON DATABASE :"DBNAME" TO regress_fence_user;
\c - regress_fence_user
CREATE SCHEMA regress_evil;
CREATE FUNCTION regress_evil.shout(text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% runs as %', $1, current_user;
END
$$;
CREATE FUNCTION regress_evil.compare(bigint, bigint) RETURNS boolean LANGUAGE sql AS
  $$ SELECT regress_evil.shout('operator') IS NULL $$;
CREATE FUNCTION regress_evil.compare(text, text) RETURNS boolean LANGUAGE sql AS
  $$ SELECT regress_evil.shout('operator') IS NULL $$;
CREATE OPERATOR regress_evil.< (FUNCTION = regress_evil.compare, LEFTARG = bigint, RIGHTARG = bigint);
CREATE OPERATOR regress_evil.= (FUNCTION = regress_evil.compare, LEFTARG = bigint, RIGHTARG = bigint);
CREATE OPERATOR regress_evil.= (FUNCTION = regress_evil.compare, LEFTARG = text, RIGHTARG = text);
CREATE FUNCTION regress_evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
  $$ SELECT regress_evil.shout('function')::timestamptz $$;
CREATE TABLE regress_evil.zk_fences (path text PRIMARY KEY, token bigint, fenced_at timestamptz, fenced_by text);
CREATE TEMP TABLE zk_fences (path text PRIMARY KEY, token bigint, fenced_at timestamptz, fenced_by text);
SET search_path = regress_evil, pg_temp, pg_catalog, public;
SELECT public.outcome($$ SELECT zk_fence('/regress/mine/a', 2) $$);
SELECT public.outcome($$ SELECT zk_fence('/regress/mine/a', 3) $$);
SELECT public.outcome($$ SELECT zk_fence('/regress/mine/a', 4) $$);
SELECT public.outcome($$ SELECT zk_fence('/regress/mine/a', 3) $$);
SELECT public.outcome($$ SELECT zk_fence('/regress/mine/b', 1) $$);
-- the same in a new session, which has nothing prepared
\c
CREATE TEMP TABLE zk_fences (path text PRIMARY KEY, token bigint, fenced_at timestamptz, fenced_by text);
SET search_path = pg_temp, regress_evil, pg_catalog, public;
SELECT public.outcome($$ SELECT zk_fence('/regress/mine/a', 3) $$);
SELECT public.outcome($$ SELECT zk_fence('/regress/mine/a', 4) $$);
SELECT public.outcome($$ SELECT zk_fence('/regress/mine/a', 5) $$);
SELECT count(*) FROM pg_temp.zk_fences;
SELECT count(*) FROM regress_evil.zk_fences;

-- the extension stays in its schema
\c - :superuser
CREATE SCHEMA regress_fence;
SELECT outcome('ALTER EXTENSION zklock SET SCHEMA regress_fence');
-- which else would not be found
ALTER TABLE zk_fencing.zk_fences SET SCHEMA regress_fence;
SELECT outcome($$ SELECT zk_fence('/regress/mine/a', 5) $$);
ALTER TABLE regress_fence.zk_fences SET SCHEMA zk_fencing;
SELECT outcome($$ SELECT zk_fence('/regress/mine/a', 5) $$);
DROP SCHEMA regress_fence;

SET client_min_messages = warning;
DROP SCHEMA regress_evil CASCADE;
DELETE FROM zk_fencing.zk_fences;
DROP OWNED BY regress_fence_user;
DROP ROLE regress_fence_plain, regress_fence_user, regress_fence_monitor;
