-- zk_stats: what one session does is counted once, for its kind and mode.
\t on
\a
CREATE VIEW counts AS
  SELECT concat_ws(' ', kind, mode) AS kind, key AS event, value::bigint AS n
  FROM zk_stats s, jsonb_each_text(to_jsonb(s) - '{kind,mode,wait_time,hold_time,wait_histogram,wait_bounds,stats_reset}'::text[]);
CREATE TABLE counted AS SELECT * FROM counts;
-- what has been counted since it was called last
-- (what is kept depends on the clock)
CREATE FUNCTION more() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  CREATE TABLE counted_now AS SELECT * FROM counts;
  RETURN QUERY SELECT format('  %s: %s', kind, string_agg(event || ' ' || now.n - before.n, ', ' ORDER BY event))
    FROM counted_now now JOIN counted before USING (kind, event) WHERE now.n <> before.n AND event !~ '^kept'
    GROUP BY kind ORDER BY kind;
  DROP TABLE counted;
  ALTER TABLE counted_now RENAME TO counted;
END
$$;
-- what a statement ends with, and what it counts
CREATE FUNCTION counts_of(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT outcome(statement);
  RETURN QUERY SELECT more();
END
$$;
-- sums agree, and each bucket has a bound
CREATE VIEW disagreeing AS SELECT * FROM zk_stats
  WHERE waits <> acquisitions - reentrant + timeouts + busy + cancels + deadlocks + failures
    OR waits <> (SELECT sum(n) FROM unnest(wait_histogram) n) OR handed_over > acquisitions
    OR cardinality(wait_histogram) <> cardinality(wait_bounds) OR wait_bounds[cardinality(wait_bounds)] <> 'Infinity';

-- locks
SELECT counts_of($$ SELECT zk_lock('/regress/stats/a') $$);
SELECT counts_of($$ SELECT zk_lock('/regress/stats/a') AND zk_xact_lock('/regress/stats/a') $$);
SELECT counts_of($$ SELECT zk_lock_shared('/regress/stats/a') $$);
SELECT zk_unlock_all();
SELECT counts_of($$ SELECT zk_lock('{/regress/stats/a,/regress/stats/b,/regress/stats/c}'::text[]) $$);
SELECT zk_unlock_all();
SELECT counts_of($$ SELECT zk_lock_tree('/regress/stats/t/b', '/regress/stats') $$);
SELECT zk_unlock_all();
-- what is refused at once is no wait
SELECT counts_of($$ SELECT zk_lock('no path') $$);

-- permits
SELECT counts_of($$ SELECT bool_and(zk_semaphore_acquire('/regress/stats/slots', 2)) FROM generate_series(1, 2) $$);
SELECT counts_of($$ SELECT zk_semaphore_acquire('/regress/stats/slots', 2, '1 ms') $$);
SELECT counts_of($$ SELECT zk_semaphore_acquire('/regress/stats/slots', 2, '0') $$);
SELECT zk_unlock_all();

-- elements of queues: what does not take them, and what does
SELECT count(zk_queue_offer('/regress/stats/q', 'x')) FROM generate_series(1, 3);
SELECT counts_of($$ SELECT zk_queue_peek('/regress/stats/q') = zk_queue_remove('/regress/stats/q') $$);
SELECT counts_of($$ SELECT zk_queue_take('/regress/stats/q', '0') $$);
SELECT counts_of($$ SELECT data FROM zk_xact_queue_take('/regress/stats/q', '0') $$);
-- none, and none in time
SELECT call, counts_of(format('SELECT %s(%L, %L)', call, '/regress/stats/q', timeout))
FROM unnest('{zk_queue_take,zk_xact_queue_take}'::text[]) call, unnest('{0,1 ms}'::text[]) timeout;
\set SHOW_CONTEXT never
SET statement_timeout = '50ms';
SELECT zk_queue_take('/regress/stats/q');
RESET statement_timeout;
SELECT more();
SET statement_timeout = '50ms';
SELECT zk_xact_queue_take('/regress/stats/q');
RESET statement_timeout;
SELECT more();
\set SHOW_CONTEXT errors
-- an error
SET zklock.parent_nodes = existing;
SELECT counts_of($$ SELECT zk_queue_take('/regress/stats/missing', '1min') $$);
RESET zklock.parent_nodes;

-- claims
SELECT zk_claim_reset('/regress/stats/claims') IS NOT NULL;
SELECT counts_of($$ SELECT zk_claim('/regress/stats/claims', '2026-01-01') $$);
SELECT counts_of($$ SELECT zk_claim('/regress/stats/claims', '2026-01-01') $$);
SELECT counts_of($$ SELECT count(*) FROM zk_last_claim('/regress/stats/claims') WHERE zk_claim_reset('/regress/stats/claims') $$);
SELECT counts_of($$ SELECT zk_claim('/regress/stats/claims' || repeat('/x', 17), now()) $$);

-- for how long something was held counts at its release: an element's is the end of its transaction or savepoint
SELECT clock_timestamp() AS before \gset
SELECT zk_stats_reset();
SELECT sum(n) FROM counts;
SELECT kind, mode FROM zk_stats WHERE hold_time > '0' OR wait_time > '0' OR stats_reset < :'before';
SELECT zk_lock('/regress/stats/a');
SELECT count(zk_queue_offer('/regress/stats/q', 'x')) FROM generate_series(1, 3);
SELECT count(*) FROM zk_stats WHERE hold_time > '0';
SELECT zk_unlock('/regress/stats/a');
SELECT kind, mode FROM zk_stats WHERE hold_time > '0';
CREATE FUNCTION held_for() RETURNS interval LANGUAGE sql AS $$ SELECT hold_time FROM zk_stats WHERE kind = 'queue' $$;
BEGIN;
SELECT count(zk_xact_queue_take('/regress/stats/q'));
SELECT clock_timestamp() AS since \gset
SELECT held_for() AS held, clock_timestamp() - :'since' AS time \gset
ROLLBACK;
SELECT :'held' = interval '0', held_for() >= 0.99 * interval :'time';
BEGIN;
SAVEPOINT s;
SELECT count(zk_xact_queue_take('/regress/stats/q'));
SELECT clock_timestamp() AS since \gset
SELECT held_for() AS held, clock_timestamp() - :'since' AS time \gset
ROLLBACK TO s;
SELECT held_for() - :'held' >= 0.99 * interval :'time';
COMMIT;
BEGIN;
SELECT count(zk_xact_queue_take('/regress/stats/q'));
SELECT clock_timestamp() AS since \gset
SELECT held_for() AS held, clock_timestamp() - :'since' AS time \gset
COMMIT;
SELECT held_for() - :'held' >= 0.99 * interval :'time';
SELECT count(zk_queue_take('/regress/stats/q')) FROM generate_series(1, 2);
-- nobody holds a claim
SELECT hold_time FROM zk_stats WHERE kind = 'claim';
SELECT * FROM disagreeing;

-- privileges are those of statistics in PostgreSQL
CREATE ROLE regress_zklock_plain;
CREATE ROLE regress_zklock_monitor IN ROLE pg_monitor;
GRANT EXECUTE ON FUNCTION zk_stats_reset() TO regress_zklock_plain, regress_zklock_monitor;
SET ROLE regress_zklock_plain;
SELECT outcome('SELECT zk_stats_reset()');
SET ROLE regress_zklock_monitor;
SELECT zk_stats_reset();
RESET ROLE;
REVOKE ALL ON FUNCTION zk_stats_reset() FROM regress_zklock_plain, regress_zklock_monitor;
DROP ROLE regress_zklock_plain, regress_zklock_monitor;
DROP VIEW counts, disagreeing;
DROP TABLE counted;
DROP FUNCTION more, counts_of, held_for;
