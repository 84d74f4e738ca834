-- Settings that are lists, or shares; settings with which an administrator binds a role.
\t on
\a
SELECT current_user AS superuser \gset
CREATE ROLE regress_zklock_bound LOGIN;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO regress_zklock_bound;

-- zklock.path_dialects: what is no list of them; the item is named, and why
ALTER SYSTEM SET zklock.path_dialects = '/a=chubby';
ALTER SYSTEM SET zklock.path_dialects = '/a=';
ALTER SYSTEM SET zklock.path_dialects = '/a=kazoo kazoo';
ALTER SYSTEM SET zklock.path_dialects = '/a=kaz';
ALTER SYSTEM SET zklock.path_dialects = '/a=kazoo, /b';
ALTER SYSTEM SET zklock.path_dialects = '/a=kazoo, /a=hive';
ALTER SYSTEM SET zklock.path_dialects = '/a/*=kazoo, /b=hive, /a/* = kazoo';
ALTER SYSTEM SET zklock.path_dialects = '/a*=kazoo';
ALTER SYSTEM SET zklock.path_dialects = '/a/=kazoo';
ALTER SYSTEM SET zklock.path_dialects = 'kazoo';
ALTER SYSTEM SET zklock.path_dialects = '/a=kazoo,';
SET zklock.path_dialects = '/a=kazoo';

-- zklock.allowed_paths: so with each command
CREATE TABLE list (n serial, value text);
INSERT INTO list (value) VALUES ('/a*'), ('/a/*/b'), ('*'), ('/a/b*'), ('/*/b'), ('/ok, /a*,/b'), ('/a/'), ('/'), ('a'),
  ('/a//b'), ('/a//*'), ('/a/../*'), ('/a' || chr(9) || 'b'), ('/zookeeper/*'), ('/a,,/b'), ('/a, '), ('/' || repeat('x', 1100));
SELECT regexp_replace(outcome(format('SET zklock.allowed_paths = %L', value)), 'x{128,}', '<xxx>') FROM list ORDER BY n;
SELECT count(*), count(*) FILTER (WHERE
  ARRAY(SELECT outcome(format('ALTER ROLE regress_zklock_bound SET zklock.allowed_paths = %L', value)))
  = ARRAY(SELECT outcome(format('SET zklock.allowed_paths = %L', value)))) AS as_set FROM list;
ALTER SYSTEM SET zklock.allowed_paths = '/ok, /a*,/b';
-- what is one
SELECT value, outcome(format('SELECT set_config(''zklock.allowed_paths'', %L, false)', value))
FROM unnest(ARRAY['', ' ', '/*', '/a', '/a/*', ' /a , /b/c/* ', '/a b', '/ä/*', '/a=b', '/a, /a']) value;
RESET zklock.allowed_paths;
DROP TABLE list;

-- zklock.servers has one chroot for all
ALTER SYSTEM SET zklock.servers = 'h1:2181/a,h2:2181/a';

-- zklock.max_locks_per_session: a share of the entries
SET zklock.max_locks_per_session = 3;
SELECT n, outcome(format('SELECT zk_lock(%L)', '/regress/settings/share' || n)) FROM generate_series(1, 4) n;
-- what is held can be locked again, and shared as well; a permit counts
SELECT zk_lock('/regress/settings/share1'), zk_lock_shared('/regress/settings/share1');
SELECT outcome($$ SELECT zk_semaphore_acquire('/regress/settings/slots', 3) $$);
-- what is released makes room for one
SELECT zk_unlock('/regress/settings/share2');
SELECT n, outcome(format('SELECT zk_lock(%L)', '/regress/settings/share' || n)) FROM generate_series(4, 5) n;
SELECT zk_unlock_all();
-- and an endless loop finds its entries again
SELECT count(*) FROM generate_series(1, 200) n
WHERE zk_lock('/regress/settings/share' || n % 3) AND zk_unlock('/regress/settings/share' || n % 3);
SELECT outcome('SET zklock.max_locks_per_session = 0');
RESET zklock.max_locks_per_session;

-- zklock.parent_nodes: with "existing" no path is created
SET zklock.parent_nodes = persistent;
SELECT zk_lock('/regress/settings/there') AND zk_unlock('/regress/settings/there');
SELECT zk_semaphore_acquire('/regress/settings/slots', 2), zk_semaphore_release('/regress/settings/slots');
-- nor are more than sixteen levels created for one request, whatever it is: nothing is then
SELECT call, replace(outcome(format('SELECT %s(%L)', call, '/regress/settings/missing' || repeat('/a', 16))), repeat('/a', 16), '/...')
FROM unnest(ARRAY['zk_lock', 'zk_try_lock', 'zk_xact_lock']) call;
SET zklock.parent_nodes = existing;
SELECT outcome($$ SELECT zk_lock('/regress/settings/missing') $$);
SELECT call, split_part(ends, ':', 1) AS sqlstate FROM unnest(ARRAY[
  $$zk_lock('/regress/settings/missing/deep', '1s')$$, $$zk_try_lock('/regress/settings/missing')$$,
  $$zk_xact_lock_shared('/regress/settings/missing')$$,
  $$zk_lock(ARRAY['/regress/settings/there', '/regress/settings/missing'])$$,
  $$zk_lock_tree('/regress/settings/there/below', '/regress/settings')$$,
  $$zk_semaphore_acquire('/regress/settings/there', 2)$$, $$zk_semaphore_acquire('/regress/settings/there', 2, '0')$$]) call,
  LATERAL outcome('SELECT ' || call) ends WHERE ends NOT LIKE ' %';
-- and what exists can be locked
SELECT zk_lock('/regress/settings/there') AND zk_unlock('/regress/settings/there');
SELECT zk_semaphore_acquire('/regress/settings/slots', 2), zk_semaphore_release('/regress/settings/slots');
RESET zklock.parent_nodes;

-- A role cannot have what it was not given, however it tries.
CREATE FUNCTION attempts(setting text, wanted text) RETURNS TABLE (attempt text, ends text) LANGUAGE sql AS $$
  SELECT statement, outcome(statement) FROM unnest(ARRAY[
    format('SET %s = %L', setting, wanted), format('SET %s = %L', setting, current_setting(setting)),
    format('SET %s TO DEFAULT', setting), format('RESET %s', setting), format('SET LOCAL %s = %L', setting, wanted),
    format('SELECT set_config(%L, %L, false)', setting, wanted),
    format('UPDATE pg_settings SET setting = %L WHERE name = %L', wanted, setting),
    format('ALTER ROLE regress_zklock_bound SET %s = %L', setting, wanted),
    format('ALTER ROLE regress_zklock_bound RESET %s', setting),
    format('CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql SET %s = %L AS ''SELECT 1''', setting, wanted)]) statement
$$;
CREATE FUNCTION given() RETURNS SETOF text LANGUAGE sql AS $$
  SELECT name || ' = ' || setting FROM pg_settings WHERE name IN ('zklock.commit_guard', 'zklock.parent_nodes',
    'zklock.allowed_paths', 'zklock.max_locks_per_session') ORDER BY name COLLATE "C" $$;
ALTER ROLE regress_zklock_bound SET zklock.commit_guard = quorum;
ALTER ROLE regress_zklock_bound SET zklock.parent_nodes = existing;
ALTER ROLE regress_zklock_bound SET zklock.allowed_paths = '/regress/settings/given';
ALTER ROLE regress_zklock_bound SET zklock.max_locks_per_session = 3;
\c - regress_zklock_bound
SELECT * FROM attempts('zklock.commit_guard', 'off');
SELECT * FROM attempts('zklock.parent_nodes', 'persistent');
SELECT * FROM attempts('zklock.parent_nodes', 'container');
SELECT * FROM attempts('zklock.allowed_paths', '/*');
SELECT * FROM attempts('zklock.max_locks_per_session', '64');
-- these reset what they may
RESET ALL;
DISCARD ALL;
ALTER ROLE regress_zklock_bound RESET ALL;
SELECT given();
\c - regress_zklock_bound
SELECT given();
SELECT outcome($$ SELECT zk_lock('/regress/settings/there') $$);
-- nor what is stricter
\c - :superuser
ALTER ROLE regress_zklock_bound SET zklock.commit_guard = off;
\c - regress_zklock_bound
SELECT * FROM attempts('zklock.commit_guard', 'lease');
SHOW zklock.commit_guard;
-- but the privilege can be granted
\c - :superuser
GRANT SET ON PARAMETER zklock.commit_guard, zklock.parent_nodes, zklock.allowed_paths, zklock.max_locks_per_session
  TO regress_zklock_bound;
SET ROLE regress_zklock_bound;
SET zklock.commit_guard = off;
SET zklock.parent_nodes = container;
SET zklock.allowed_paths = '/*';
SET zklock.max_locks_per_session = 64;
SELECT given();
RESET ROLE;
REVOKE SET ON PARAMETER zklock.commit_guard, zklock.parent_nodes, zklock.allowed_paths, zklock.max_locks_per_session
  FROM regress_zklock_bound;

DROP FUNCTION given(), attempts(text, text);
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM regress_zklock_bound;
DROP ROLE regress_zklock_bound;
