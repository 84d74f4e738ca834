-- Queues, as one session sees them: what is offered and taken, also by transactions, and what is refused.
\t on
\a
CREATE FUNCTION all_calls(path text) RETURNS TABLE (call text, ends text) LANGUAGE sql AS $$
  SELECT call, outcome(format('SELECT ' || call, path)) FROM unnest(ARRAY[
    'zk_queue_offer(%L, ''x'')', 'zk_queue_peek(%L)', 'zk_queue_remove(%L)',
    'zk_queue_take(%L, ''1min'')', 'zk_xact_queue_take(%L, ''1min'')']) call
$$;

-- arguments
SELECT * FROM all_calls(NULL);
SELECT * FROM all_calls('relative');
SELECT outcome($$ SELECT zk_queue_offer('/regress/queue', NULL) $$);
SELECT outcome($$ SELECT zk_queue_offer('/regress/queue', convert_to(repeat('x', 65537), 'UTF8')) $$);
SELECT outcome($$ SELECT zk_queue_take('/regress/queue', '-1s') $$);
SELECT outcome($$ SELECT zk_xact_queue_take('/regress/queue', '-1s') $$);
-- to a path that long no name of an element can be added
SELECT replace(outcome($$ SELECT zk_xact_queue_take('/$$ || repeat('x', 1000) || $$') $$), repeat('x', 1000), '<xxx>');

-- paths that are not allowed
SET zklock.allowed_paths = '/elsewhere/*';
SELECT * FROM all_calls('/regress/queue');
RESET zklock.allowed_paths;
DROP FUNCTION all_calls(text);

-- what is in a queue, at any path
SET zklock.allowed_paths = '/elsewhere/*';
SELECT zk_queue_length('/regress/not/there'), (SELECT count(*) FROM zk_queue_elements('/regress/not/there'));
RESET zklock.allowed_paths;
SELECT outcome($$ SELECT zk_queue_length(NULL) $$), outcome($$ SELECT zk_queue_elements(NULL) $$);
SELECT outcome($$ SELECT zk_queue_length('relative') $$);
SELECT zk_queue_offer('/regress/listed', 'one') < zk_queue_offer('/regress/listed', '');
BEGIN;
SELECT data FROM zk_xact_queue_take('/regress/listed', '0');
SELECT zk_queue_length('/regress/listed');
SELECT "position", length, created > now() - interval '1 hour' AS created, taken, pid = pg_backend_pid() AS mine, usename = session_user AS role
FROM zk_queue_elements('/regress/listed');
COMMIT;
SELECT "position", length, taken, pid FROM zk_queue_elements('/regress/listed');
SELECT zk_queue_remove('/regress/listed'), zk_queue_length('/regress/listed');

-- who rolls back, or back to a savepoint, and asks again gets the same element, each time
CREATE PROCEDURE take_again() LANGUAGE plpgsql AS $$
DECLARE
  offered text := zk_queue_offer('/regress/queue', 'one');
  taken text;
BEGIN
  PERFORM zk_queue_offer('/regress/queue', 'two');
  FOR i IN 1 .. 50 LOOP
    BEGIN
      SELECT element INTO taken FROM zk_xact_queue_take('/regress/queue', '0');
      RAISE EXCEPTION 'give it back';
    EXCEPTION WHEN raise_exception THEN
    END;
    ASSERT taken = offered;
    SELECT element INTO taken FROM zk_xact_queue_take('/regress/queue', '0');
    ASSERT taken = offered;
    ROLLBACK;
  END LOOP;
END $$;
CALL take_again();
SELECT convert_from(zk_queue_remove('/regress/queue'), 'UTF8') FROM generate_series(1, 2);
DROP PROCEDURE take_again;

-- what is offered is shown, removed and taken in its order
CREATE FUNCTION offer(VARIADIC data text[]) RETURNS bigint LANGUAGE sql AS
  $$ SELECT count(zk_queue_offer('/regress/queue', convert_to(d, 'UTF8'))) FROM unnest(data) d $$;
CREATE FUNCTION peek() RETURNS text LANGUAGE sql AS $$ SELECT convert_from(zk_queue_peek('/regress/queue'), 'UTF8') $$;
CREATE FUNCTION xact_take() RETURNS text LANGUAGE sql AS
  $$ SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('/regress/queue') $$;
SELECT zk_queue_offer('/regress/queue', 'one') ~ '^qn-\d{10}$';
SELECT offer('two', 'three');
SELECT peek(), peek();
SELECT convert_from(zk_queue_remove('/regress/queue'), 'UTF8');
SELECT convert_from(zk_queue_take('/regress/queue'), 'UTF8'), xact_take();
SELECT peek() IS NULL, zk_queue_remove('/regress/queue') IS NULL, zk_queue_take('/regress/queue', '0') IS NULL,
  (SELECT element IS NULL FROM zk_xact_queue_take('/regress/queue', '0'));
-- any bytes, none, and as many as there may be
SELECT length(data), zk_queue_offer('/regress/queue', data) <> '', zk_queue_peek('/regress/queue') = data,
  zk_queue_remove('/regress/queue') = data
FROM unnest(ARRAY['', '\x0001ff00', convert_to(repeat('x', 65536), 'UTF8')]) data;

-- what a transaction takes is removed when it commits
SELECT offer('one', 'two', 'three');
BEGIN;
SELECT element ~ '^qn-\d{10}$', convert_from(data, 'UTF8'), token > 0 FROM zk_xact_queue_take('/regress/queue');
SELECT peek();
COMMIT;
SELECT peek();
-- a statement alone is one
SELECT xact_take();
-- it comes back if the transaction does not commit, as one that is prepared never does
BEGIN;
SELECT xact_take();
ROLLBACK;
BEGIN;
SELECT xact_take();
SELECT 1 / 0;
ROLLBACK;
BEGIN;
SELECT xact_take();
PREPARE TRANSACTION 'regress_zklock';
SELECT convert_from(zk_queue_remove('/regress/queue'), 'UTF8');
-- and after a savepoint if that is rolled back
SELECT offer('one', 'two', 'three');
BEGIN;
SELECT xact_take();
SAVEPOINT a;
SELECT xact_take();
SAVEPOINT b;
SELECT xact_take();
RELEASE b;
ROLLBACK TO a;
SELECT convert_from(zk_queue_take('/regress/queue'), 'UTF8');
COMMIT;
SELECT xact_take();
SELECT zk_queue_take('/regress/queue', '0') IS NULL;

-- no session has more elements than its share, nor more bytes of their paths
SELECT count(zk_queue_offer('/regress/queue', '')) FROM generate_series(1, 66);
BEGIN;
SELECT count(zk_xact_queue_take('/regress/queue')) FROM generate_series(1, 64);
SELECT outcome($$ SELECT zk_xact_queue_take('/regress/queue') $$);
ROLLBACK;
SELECT count(zk_queue_take('/regress/queue')) FROM generate_series(1, 66);
SELECT '/regress/' || string_agg(repeat(c, 200), '/') AS long FROM unnest('{a,b,c,d}'::text[]) c \gset
SELECT count(zk_queue_offer(:'long', 'x')) FROM generate_series(1, 40);
SET zklock.max_locks_per_session = 50;
BEGIN;
\set VERBOSITY sqlstate
SELECT zk_xact_queue_take(:'long') FROM generate_series(1, 40);
\set VERBOSITY default
ROLLBACK;
RESET zklock.max_locks_per_session;
SELECT count(zk_queue_take(:'long')) FROM generate_series(1, 40);

-- a path that is not to be created: who does not wait finds it empty
SET zklock.parent_nodes = existing;
SELECT zk_queue_remove('/regress/missing') IS NULL;
SELECT outcome($$ SELECT zk_queue_take('/regress/missing', '1min') $$);
SELECT outcome($$ SELECT zk_queue_offer('/regress/missing', 'x') $$);
RESET zklock.parent_nodes;
DROP FUNCTION offer, peek, xact_take;
