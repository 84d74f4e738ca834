-- What queues refuse.
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
