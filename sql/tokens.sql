-- Fencing tokens.
\t on
\a
CREATE TEMP TABLE token (n serial, path text, what text, token bigint);
CREATE FUNCTION note_token(at_path text, at text) RETURNS void LANGUAGE sql AS
  $$ INSERT INTO token (path, what, token) VALUES (at_path, at, zk_fencing_token(at_path)) $$;

-- grant after grant of one session
DO $$
BEGIN
  FOR i IN 1 .. 10 LOOP
    PERFORM zk_lock('/regress/tokens_a');
    PERFORM note_token('/regress/tokens_a', 'session ' || i);
    PERFORM zk_unlock('/regress/tokens_a');
  END LOOP;
  FOR i IN 1 .. 5 LOOP
    PERFORM zk_xact_lock('/regress/tokens_a');
    PERFORM note_token('/regress/tokens_a', 'transaction ' || i);
    COMMIT;
  END LOOP;
  FOR i IN 1 .. 5 LOOP
    BEGIN
      PERFORM zk_try_xact_lock('/regress/tokens_a');
      -- an insert would go with the block: the message takes the token out of it
      RAISE EXCEPTION '%', zk_fencing_token('/regress/tokens_a') USING ERRCODE = 'ZKTOK';
    EXCEPTION WHEN SQLSTATE 'ZKTOK' THEN
      INSERT INTO token (path, what, token) VALUES ('/regress/tokens_a', 'rolled back ' || i, SQLERRM::bigint);
    END;
  END LOOP;
  FOR i IN 1 .. 3 LOOP
    PERFORM zk_lock(ARRAY['/regress/tokens_a', '/regress/tokens_b']);
    PERFORM note_token('/regress/tokens_a', 'array ' || i);
    PERFORM note_token('/regress/tokens_b', 'array ' || i);
    PERFORM zk_unlock_all();
  END LOOP;
END
$$;
SELECT path, count(*), count(DISTINCT token), min(token) > 0 FROM token GROUP BY path ORDER BY path;
-- none that is not above the one before
SELECT path, what FROM (
  SELECT path, what, token, lag(token) OVER (PARTITION BY path ORDER BY n) AS before FROM token) t
WHERE token <= before;

-- one grant has one token, however often and in whatever scope it is acquired
BEGIN;
SELECT zk_lock('/regress/tokens_a');
SELECT zk_fencing_token('/regress/tokens_a') AS token \gset
SELECT zk_xact_lock('/regress/tokens_a'), zk_fencing_token('/regress/tokens_a') = :token;
SELECT zk_unlock('/regress/tokens_a'), zk_fencing_token('/regress/tokens_a') = :token;
SAVEPOINT s;
SELECT zk_lock('/regress/tokens_a'), zk_fencing_token('/regress/tokens_a') = :token;
ROLLBACK TO s;
SELECT zk_fencing_token('/regress/tokens_a') = :token;
COMMIT;
SELECT zk_fencing_token('/regress/tokens_a') = :token,
  (SELECT bool_and(token < :token) FROM token WHERE path = '/regress/tokens_a');
SELECT zk_unlock('/regress/tokens_a');

-- the next session goes on from there
\c
SELECT zk_lock('/regress/tokens_a', '1 min'), zk_fencing_token('/regress/tokens_a') > :token;
SELECT zk_unlock('/regress/tokens_a');
DROP FUNCTION note_token;
