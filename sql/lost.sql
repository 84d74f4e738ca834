-- What a session is told of locks and permits that it has lost: here by zk_break_lock().
\t on
\a
CREATE TABLE work (i int);
-- those that the session holds on a path, or one of them, in the order of their nodes
CREATE FUNCTION lose(the_path text, which int DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  broken text[];
BEGIN
  broken := ARRAY(SELECT DISTINCT node COLLATE "C" FROM zk_locks WHERE pid = pg_backend_pid() AND path = the_path ORDER BY 1);
  IF which IS NOT NULL THEN
    broken := broken[which:which];
  END IF;
  PERFORM zk_break_lock(the_path, node) FROM unnest(broken) node;
  WHILE EXISTS (SELECT FROM zk_locks WHERE node = ANY (broken) AND state <> 'lost') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  RETURN cardinality(broken);
END
$$;
CREATE VIEW left_over AS
  SELECT path, state, count(*) FROM zk_locks WHERE pid = pg_backend_pid() AND state <> 'releasing'
  GROUP BY path, state ORDER BY path COLLATE "C", state;

-- who gives up all locks is told of those that were lost, and of no others
SELECT zk_lock('/regress/lost'), zk_lock_shared('/regress/lost'), zk_lock('/regress/kept');
SELECT lose('/regress/lost');
SELECT * FROM left_over;
SELECT zk_unlock_all();
SELECT * FROM left_over;
SELECT zk_lock('/regress/lost'), zk_lock_shared('/regress/lost'), zk_lock('/regress/kept');
SELECT lose('/regress/lost');
DISCARD ALL;
SELECT * FROM left_over;
-- a lock of the transaction is not given up by that, but the commit fails
BEGIN;
SELECT zk_xact_lock('/regress/lost');
SELECT lose('/regress/lost');
SELECT zk_unlock_all();
COMMIT;
SELECT * FROM left_over;

-- a session does not write, or have the lock again, as long as it has not given back what it lost, though it rolled back
SELECT zk_lock('/regress/lost');
BEGIN;
INSERT INTO work VALUES (0);
SELECT lose('/regress/lost');
ROLLBACK;
INSERT INTO work VALUES (0);
SELECT zk_try_lock('/regress/lost');
SELECT zk_unlock('/regress/lost');
INSERT INTO work VALUES (1);
-- the loss goes with the savepoint that the lock was acquired after
BEGIN;
SAVEPOINT s;
SELECT zk_xact_lock('/regress/lost');
SELECT lose('/regress/lost');
ROLLBACK TO s;
INSERT INTO work VALUES (1);
COMMIT;
SELECT i FROM work;
TRUNCATE work;

-- of several permits the lost one is released first
SELECT zk_semaphore_acquire('/regress/slots', 3) FROM generate_series(1, 3);
SELECT lose('/regress/slots', 2);
SELECT * FROM left_over;
SELECT zk_semaphore_release('/regress/slots');
SELECT * FROM left_over;
SELECT zk_semaphore_release('/regress/slots'), zk_semaphore_release('/regress/slots');
SELECT zk_semaphore_release('/regress/slots');

-- a transaction that has written while a permit was lost does not commit, one that has only read does
SELECT zk_semaphore_acquire('/regress/slots', 1);
BEGIN;
INSERT INTO work VALUES (1);
SELECT lose('/regress/slots');
COMMIT;
BEGIN;
SELECT count(*) FROM work;
COMMIT;
-- once it is given up it is no obstacle
SELECT zk_unlock_all();
INSERT INTO work VALUES (2);
SELECT count(*) FROM work;
-- nor need a permit of the transaction be given up, with which that does not commit either
BEGIN;
SELECT zk_xact_semaphore_acquire('/regress/slots', 1);
INSERT INTO work VALUES (3);
SELECT lose('/regress/slots');
COMMIT;
SELECT zk_semaphore_acquire('/regress/slots', 1, '30s');
SELECT zk_semaphore_release('/regress/slots');
SELECT * FROM work;
SELECT * FROM left_over;
DROP TABLE work;
DROP VIEW left_over;
DROP FUNCTION lose;
