-- A path has one use: who wants another one is refused, and what is there stays.
\t on
\a
CREATE TABLE calls (kind text, call text);
INSERT INTO calls VALUES
  ('lock', 'zk_lock(%L)'), ('lock', 'zk_lock_shared(%L)'), ('lock', 'zk_try_lock(%L)'), ('lock', 'zk_xact_lock(%L)'),
  ('semaphore', 'zk_semaphore_acquire(%L, 1)'), ('semaphore', 'zk_semaphore_acquire(%L, 1, ''0'')'),
  ('claim', 'zk_claim(%L, now())'),
  ('queue', 'zk_queue_offer(%L, ''x'')'), ('queue', 'zk_queue_peek(%L)'), ('queue', 'zk_queue_remove(%L)'),
  ('queue', 'zk_queue_take(%L, ''2s'')'), ('queue', 'zk_xact_queue_take(%L, ''2s'')');
-- how all calls of a kind end there
CREATE FUNCTION ends(kind text, path text) RETURNS TABLE (calls bigint, ends text) LANGUAGE sql AS $$
  SELECT count(*), ends FROM calls c,
    LATERAL (SELECT string_agg(line, E'\n') FROM outcome('SELECT ' || format(call, path)) line) o (ends)
  WHERE c.kind = ends.kind GROUP BY ends ORDER BY ends
$$;
SELECT zk_claim_reset('/regress/uses/claim') IS NOT NULL;
-- a lock; when it is free, ZooKeeper may remove its node
SELECT zk_lock('/regress/uses/lock');
SELECT * FROM ends('claim', '/regress/uses/lock');
SELECT * FROM ends('queue', '/regress/uses/lock');
SELECT zk_unlock('/regress/uses/lock');
SELECT * FROM ends('claim', '/regress/uses/lock');
-- claims, also when they have been reset
SELECT zk_claim('/regress/uses/claim', '2026-01-01');
SELECT * FROM ends('lock', '/regress/uses/claim');
SELECT * FROM ends('semaphore', '/regress/uses/claim');
SELECT * FROM ends('queue', '/regress/uses/claim');
SELECT zk_claim('/regress/uses/claim', '2026-01-02');
SELECT zk_claim_reset('/regress/uses/claim');
SELECT * FROM ends('queue', '/regress/uses/claim');
-- a semaphore, where each node below the leases would be a permit
SELECT zk_semaphore_acquire('/regress/uses/semaphore', 1);
SELECT * FROM ends('claim', '/regress/uses/semaphore');
SELECT * FROM ends('claim', '/regress/uses/semaphore/leases/0');
SELECT * FROM ends('lock', '/regress/uses/semaphore/leases');
SELECT count(*) FROM zk_contenders('/regress/uses/semaphore');
SELECT zk_semaphore_release('/regress/uses/semaphore');
SELECT zk_lock('/regress/uses/locked/leases');
SELECT * FROM ends('semaphore', '/regress/uses/locked');
SELECT zk_unlock('/regress/uses/locked/leases');
-- a queue, also when it is empty
SELECT zk_queue_offer('/regress/uses/queue', 'x') <> '';
SELECT * FROM ends('claim', '/regress/uses/queue');
SELECT * FROM ends('lock', '/regress/uses/queue');
BEGIN;
SELECT element AS taken FROM zk_xact_queue_take('/regress/uses/queue') \gset
SELECT calls, regexp_replace(ends, '\d{10}', '<number>') FROM ends('lock', '/regress/uses/queue/' || :'taken');
ROLLBACK;
SELECT convert_from(zk_queue_remove('/regress/uses/queue'), 'UTF8');
SELECT * FROM ends('claim', '/regress/uses/queue');
-- where zklock keeps its own
SELECT * FROM unnest('{/zklock-waits,/zklock-waits/x,/zklock-receipts}'::text[]) path, ends('lock', path);
DROP FUNCTION ends;
DROP TABLE calls;
