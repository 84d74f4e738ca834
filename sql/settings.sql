-- Settings: their limits, and how ALTER SYSTEM refuses what cannot be right, which changes nothing.
\t on
\a
SELECT name, min_val, max_val, unit, enumvals FROM pg_settings
WHERE name IN ('zklock.max_locks', 'zklock.session_timeout', 'zklock.acl') ORDER BY name;

-- each reason once: test/unit/test_connect_string.c has all that is wrong for it
ALTER SYSTEM SET zklock.servers = '';
ALTER SYSTEM SET zklock.servers = 'localhost:0';
ALTER SYSTEM SET zklock.servers = 'a:1,b:99999';
ALTER SYSTEM SET zklock.servers = 'local host:2181';
ALTER SYSTEM SET zklock.servers = '[::1:2181';
ALTER SYSTEM SET zklock.servers = 'localhost:2181/a//b';
ALTER SYSTEM SET zklock.servers = 'localhost:2181/a/';
ALTER SYSTEM SET zklock.servers = 'localhost:2181/a/..';
ALTER SYSTEM SET zklock.servers = 'localhost:2181/zookeeper';
ALTER SYSTEM SET zklock.max_locks = '0';
ALTER SYSTEM SET zklock.acl = 'closed';
-- this is a list, so that quotes would make one item of the text
ALTER SYSTEM SET zklock.allowed_paths = 'a';
ALTER SYSTEM SET zklock.allowed_paths = '/a, b';
ALTER SYSTEM SET zklock.allowed_paths = '*';
ALTER SYSTEM SET zklock.allowed_paths = '/a,b*';
-- a forgotten comma
ALTER SYSTEM SET zklock.allowed_paths = '/pay/lock /x';
ALTER SYSTEM SET zklock.path_dialects = '/pay/lock /x=kazoo';
ALTER SYSTEM SET zklock.path_dialects = '/pay/lock=kazoo /x=kazoo';
ALTER SYSTEM SET zklock.elections = '/pay/leader /x';
-- PostgreSQL's own reasons, in its words
\set VERBOSITY sqlstate
ALTER SYSTEM SET zklock.max_locks = '-2';
ALTER SYSTEM SET zklock.max_locks = '16385';
ALTER SYSTEM SET zklock.session_timeout = '999ms';
ALTER SYSTEM SET zklock.session_timeout = '61min';
ALTER SYSTEM SET zklock.session_timeout = '-1';
ALTER SYSTEM SET zklock.session_timeout = '0';
ALTER SYSTEM SET zklock.session_timeout = 'soon';
\set VERBOSITY default

-- zklock.session_locks = off: nothing is held at session level, since behind a pool of connections
-- another client would have what one holds
CREATE ROLE regress_zklock_pooled LOGIN;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO regress_zklock_pooled;
ALTER ROLE regress_zklock_pooled SET zklock.session_locks = off;
SELECT current_user AS superuser \gset
\c - regress_zklock_pooled
-- what would be is refused, and the hint names what is not
SELECT call, outcome('SELECT ' || call), outcome('SELECT ' || regexp_replace(call, '^zk_(try_)?', 'zk_\1xact_'))
FROM unnest(ARRAY['zk_lock(''/regress/p'')', 'zk_lock(ARRAY[''/regress/p''])', 'zk_try_lock(''/regress/p'')',
  'zk_lock_shared(''/regress/p'')', 'zk_lock_shared(ARRAY[''/regress/p''])', 'zk_try_lock_shared(''/regress/p'')',
  'zk_lock_tree(''/regress/p/q'', ''/regress/p'')', 'zk_lock_tree_shared(''/regress/p/q'', ''/regress/p'')',
  'zk_semaphore_acquire(''/regress/s'', 1)']) call;
SELECT * FROM held;
-- the role cannot change it
SELECT outcome('SET zklock.session_locks = on');
-- what is held already can be released
\c - :superuser
SELECT zk_lock('/regress/p');
SET zklock.session_locks = off;
SELECT zk_unlock('/regress/p');
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM regress_zklock_pooled;
DROP ROLE regress_zklock_pooled;
