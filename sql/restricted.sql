-- A table's owner has others run its functions when they maintain the table. There, in PostgreSQL's
-- security-restricted operations, locks cannot be had or given up.
\t on
\a
CREATE ROLE regress_zklock_owner;
GRANT CREATE ON SCHEMA public TO regress_zklock_owner;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO regress_zklock_owner;
SET SESSION AUTHORIZATION regress_zklock_owner;
-- What is to be called when others maintain the table. The function says it is immutable: else it could not be in an
-- index. Maintenance has another search_path.
CREATE TABLE trapped (call text);
INSERT INTO trapped VALUES ('1');
CREATE FUNCTION trap(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE SET search_path = public AS $$
BEGIN
  IF session_user <> 'regress_zklock_owner' THEN
    EXECUTE 'SELECT ' || call FROM trapped;
  END IF;
  RETURN i;
END
$$;
CREATE TABLE bait AS SELECT generate_series(1, 10) i;
CREATE INDEX bait_trap ON bait (trap(i));
CREATE MATERIALIZED VIEW bait_view AS SELECT trap(i) FROM bait;
-- maintenance does not look at tables that have not changed
INSERT INTO bait VALUES (11);
RESET SESSION AUTHORIZATION;
CREATE FUNCTION maintained(call text, maintenance text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  UPDATE trapped SET call = $1;
  RETURN QUERY SELECT outcome(maintenance);
END
$$;

-- maintenance by a superuser takes no lock for the owner, and creates no path
SELECT maintained($$zk_lock('/regress/victim', '0')$$, maintenance) FROM unnest(ARRAY['ANALYZE bait', 'REINDEX TABLE bait',
  'CLUSTER bait USING bait_trap', 'CREATE INDEX another ON bait (trap(i + 1))', 'REFRESH MATERIALIZED VIEW bait_view']) maintenance;
\set SHOW_CONTEXT never
VACUUM FULL bait;
\set SHOW_CONTEXT errors
SELECT * FROM held;
SET zklock.parent_nodes = existing;
SELECT outcome($$ SELECT zk_try_lock('/regress/victim') $$);
RESET zklock.parent_nodes;
-- whatever function it calls
SELECT call, maintained(call, 'ANALYZE bait') FROM (
    SELECT format('%s(%s, ''0'')', name, paths)
    FROM unnest(ARRAY['zk_lock', 'zk_lock_shared', 'zk_xact_lock', 'zk_xact_lock_shared']) name,
      unnest(ARRAY['''/regress/victim''', 'ARRAY[''/regress/victim'']']) paths
    UNION ALL SELECT name || '(''/regress/victim'')'
    FROM unnest(ARRAY['zk_try_lock', 'zk_try_lock_shared', 'zk_try_xact_lock', 'zk_try_xact_lock_shared']) name
    UNION ALL SELECT name || '(''/regress/victim/a'', ''/'', ''0'')'
    FROM unnest(ARRAY['zk_lock_tree', 'zk_lock_tree_shared', 'zk_xact_lock_tree', 'zk_xact_lock_tree_shared']) name
    UNION ALL SELECT 'zk_semaphore_acquire(''/regress/victim'', 3, ''0'')') calls (call);
SELECT * FROM held;
-- nor does it release any
SELECT zk_lock('/regress/restricted/held'), zk_lock_shared('/regress/restricted/shared'),
  zk_lock_tree('/regress/restricted/tree/a', '/regress/restricted/tree'), zk_semaphore_acquire('/regress/restricted/slots', 3);
SELECT * FROM held;
SELECT call, maintained(call, 'ANALYZE bait') FROM unnest(ARRAY[
  'zk_unlock(''/regress/restricted/held'')', 'zk_unlock(ARRAY[''/regress/restricted/held''])',
  'zk_unlock_shared(''/regress/restricted/shared'')', 'zk_unlock_shared(ARRAY[''/regress/restricted/shared''])',
  'zk_unlock_tree(''/regress/restricted/tree/a'', ''/regress/restricted/tree'')',
  'zk_unlock_tree_shared(''/regress/restricted/tree/a'', ''/regress/restricted/tree'')',
  'zk_unlock_all()', 'zk_semaphore_release(''/regress/restricted/slots'')',
  'zk_fencing_token(''/regress/restricted/held'')']) call;
SELECT * FROM held;
SELECT zk_unlock_all();
-- nor fences any
SELECT maintained('zk_fence(''/regress/victim'', 9223372036854775807)', 'ANALYZE bait');
SELECT count(*) FROM zk_fencing.zk_fences WHERE path ~ '^/regress/victim';

-- elsewhere an index can have such a function: who inserts calls it; who maintains the table cannot, not even its owner
DROP FUNCTION maintained(text, text);
SET SESSION AUTHORIZATION regress_zklock_owner;
CREATE OR REPLACE FUNCTION trap(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE SET search_path = public AS $$
BEGIN
  PERFORM zk_xact_lock('/regress/restricted/own');
  RETURN i;
END
$$;
BEGIN;
INSERT INTO bait VALUES (12);
SELECT * FROM held;
COMMIT;
SELECT outcome('ANALYZE bait');
DROP MATERIALIZED VIEW bait_view;
DROP TABLE bait, trapped;
DROP FUNCTION trap(int);
RESET SESSION AUTHORIZATION;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM regress_zklock_owner;
REVOKE ALL ON SCHEMA public FROM regress_zklock_owner;
DROP ROLE regress_zklock_owner;
