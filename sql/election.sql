-- Elections: which the setting may name, and what functions refuse where this server does not stand.
\t on
\a
-- a setting that is refused, and why
ALTER SYSTEM SET zklock.elections = 'e';
ALTER SYSTEM SET zklock.elections = '/e/*';
ALTER SYSTEM SET zklock.elections = '/e=foo';
ALTER SYSTEM SET zklock.elections = '/e, /e=zookeeper';
ALTER SYSTEM SET zklock.elections = '/e,';
ALTER SYSTEM SET zklock.elections = '/e/x, /e=zookeeper';
ALTER SYSTEM SET zklock.elections = '/e priority two';
ALTER SYSTEM SET zklock.elections = '/e=lock priority 1001';
ALTER SYSTEM SET zklock.elections = '/e priority 2, /e priority 3';
SELECT string_agg('/' || i, ', ') AS many FROM generate_series(1, 65) i \gset
ALTER SYSTEM SET zklock.elections = :'many';

-- arguments
SELECT call, outcome(format('SELECT ' || call, path)) FROM unnest(ARRAY[NULL, 'e', '/regress/election']) path, unnest(ARRAY[
  'zk_is_leader(%L)', 'zk_await_leadership(%L)', 'zk_await_leadership(%L, ''-1s'')', 'zk_resign(%L)', 'zk_leader(%L)']) call;

-- with EXECUTE they work, for the paths allowed; but it takes an administrator to resign, which concerns all sessions
CREATE ROLE regress_zklock_batch;
GRANT EXECUTE ON FUNCTION zk_is_leader, zk_await_leadership, zk_resign, zk_leader TO regress_zklock_batch;
SET zklock.allowed_paths = '/regress/election/*';
SET ROLE regress_zklock_batch;
SELECT call, outcome(format('SELECT ' || call, path)) FROM unnest(ARRAY['/regress/election/a', '/regress/election']) path, unnest(ARRAY[
  'zk_is_leader(%L)', 'zk_await_leadership(%L)', 'zk_resign(%L)', 'zk_leader(%L)']) call;
RESET ROLE;
RESET zklock.allowed_paths;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM regress_zklock_batch;
DROP ROLE regress_zklock_batch;
