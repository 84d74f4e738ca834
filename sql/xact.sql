-- Transaction-level locks.
\t on
\a
-- they go with the transaction, however it ends
BEGIN;
SELECT zk_xact_lock('/regress/xact_a');
SELECT * FROM held;
SELECT zk_xact_lock('/regress/xact_a', '0');
SELECT zk_try_xact_lock('/regress/xact_a');
SELECT zk_try_xact_lock('/regress/xact_b');
SELECT * FROM held;
COMMIT;
SELECT * FROM held;
BEGIN;
SELECT zk_xact_lock('/regress/xact_a');
ROLLBACK;
SELECT * FROM held;
SELECT zk_xact_lock('/regress/xact_a');
SELECT * FROM held;
BEGIN;
SELECT zk_xact_lock('/regress/xact_a');
SELECT 1/0;
SELECT zk_xact_lock('/regress/xact_a');
COMMIT;
SELECT * FROM held;
BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE;
SELECT zk_xact_lock('/regress/xact_a');
COMMIT AND CHAIN;
SELECT * FROM held;
SELECT zk_xact_lock('/regress/xact_a');
ROLLBACK AND CHAIN;
SELECT * FROM held;
COMMIT;
-- so that a transaction of a procedure has its own
DO $$
BEGIN
  PERFORM zk_xact_lock('/regress/xact_a');
  RAISE INFO 'held: %', (SELECT count(*) FROM held);
  COMMIT;
  RAISE INFO 'held after commit: %', (SELECT count(*) FROM held);
  PERFORM zk_xact_lock('/regress/xact_b');
  ROLLBACK;
  RAISE INFO 'held after rollback: %', (SELECT count(*) FROM held);
END
$$;

-- they cannot be unlocked by hand
BEGIN;
SELECT zk_xact_lock('/regress/xact_a');
SELECT zk_unlock('/regress/xact_a');
SELECT zk_unlock_all();
SELECT * FROM held;
COMMIT;
SELECT * FROM held;

-- a rollback to a savepoint releases what was locked since
BEGIN;
SELECT zk_xact_lock('/regress/xact_a');
SAVEPOINT s;
SELECT zk_xact_lock('/regress/xact_a');
SELECT zk_xact_lock('/regress/xact_b');
SELECT * FROM held;
ROLLBACK TO s;
SELECT * FROM held;
-- where it can be locked again
SELECT zk_xact_lock('/regress/xact_b');
SELECT * FROM held;
-- a released savepoint passes its locks on to the transaction
RELEASE s;
SELECT * FROM held;
SAVEPOINT s;
SELECT 1 FROM held;
ROLLBACK TO s;
SELECT * FROM held;
COMMIT;
SELECT * FROM held;

-- or to the savepoint before it, with which they go
BEGIN;
SAVEPOINT s1;
SELECT zk_xact_lock('/regress/xact_a');
SAVEPOINT s2;
SELECT zk_xact_lock('/regress/xact_a'), zk_xact_lock('/regress/xact_a');
SELECT zk_xact_lock('/regress/xact_b');
RELEASE s2;
SELECT * FROM held;
ROLLBACK TO s1;
SELECT * FROM held;
COMMIT;

-- many levels, in the middle of which a rollback cuts
BEGIN;
SELECT zk_xact_lock('/regress/xact_a');
SAVEPOINT s1;
SELECT zk_xact_lock('/regress/xact_a');
SAVEPOINT s2;
SELECT zk_xact_lock('/regress/xact_a');
SAVEPOINT s3;
SELECT zk_xact_lock('/regress/xact_a');
SAVEPOINT s4;
SELECT zk_xact_lock('/regress/xact_a');
SAVEPOINT s5;
SELECT zk_xact_lock('/regress/xact_a');
SAVEPOINT s6;
SELECT zk_xact_lock('/regress/xact_a');
SELECT * FROM held;
RELEASE s5;
SELECT * FROM held;
ROLLBACK TO s3;
SELECT * FROM held;
RELEASE s2;
SELECT * FROM held;
SELECT zk_xact_lock('/regress/xact_a');
SELECT * FROM held;
ROLLBACK TO s1;
SELECT * FROM held;
COMMIT;
SELECT * FROM held;

-- an error caught in PL/pgSQL takes the locks of its block along, but no session-level ones
BEGIN;
DO $$
BEGIN
  PERFORM zk_xact_lock('/regress/xact_a');
  BEGIN
    PERFORM zk_xact_lock('/regress/xact_a');
    PERFORM zk_xact_lock('/regress/xact_b');
    PERFORM zk_lock('/regress/xact_c');
    RAISE division_by_zero;
  EXCEPTION WHEN division_by_zero THEN
    PERFORM zk_xact_lock('/regress/xact_d');
  END;
  RAISE INFO 'held behind the block: %', (SELECT string_agg(path || ' ' || count, ', ') FROM held);
  -- an error of our own as well
  BEGIN
    PERFORM zk_xact_lock('/regress/xact_e');
    PERFORM zk_xact_lock('relative');
  EXCEPTION WHEN invalid_parameter_value THEN
    NULL;
  END;
  -- and a block without an error passes them on
  BEGIN
    PERFORM zk_xact_lock('/regress/xact_f');
  EXCEPTION WHEN division_by_zero THEN
    NULL;
  END;
END
$$;
SELECT * FROM held;
COMMIT;
SELECT * FROM held;
SELECT zk_unlock_all();

-- both scopes on one path: the lock stays until both have gone
BEGIN;
SELECT zk_lock('/regress/xact_a'), zk_xact_lock('/regress/xact_a'), zk_lock('/regress/xact_a');
SELECT * FROM held;
COMMIT;
SELECT * FROM held;
BEGIN;
SELECT zk_xact_lock('/regress/xact_a');
SELECT zk_unlock('/regress/xact_a'), zk_unlock('/regress/xact_a');
SELECT * FROM held;
SELECT zk_unlock('/regress/xact_a');
ROLLBACK;
SELECT * FROM held;
BEGIN;
SELECT zk_xact_lock('/regress/xact_a');
SELECT zk_lock('/regress/xact_a');
ROLLBACK;
SELECT * FROM held;
BEGIN;
SAVEPOINT s;
SELECT zk_xact_lock('/regress/xact_a');
SELECT zk_unlock_all();
SELECT * FROM held;
SELECT zk_lock('/regress/xact_a');
ROLLBACK TO s;
SELECT * FROM held;
SELECT zk_unlock('/regress/xact_a');
SELECT * FROM held;
COMMIT;

-- two-phase commit: the transaction would have no session to hold the lock
BEGIN;
SELECT zk_xact_lock('/regress/xact_a');
\set VERBOSITY sqlstate
PREPARE TRANSACTION 'zklock_regress';
\set VERBOSITY default
SELECT * FROM held;
SELECT count(*) FROM pg_prepared_xacts;
BEGIN;
SAVEPOINT s;
SELECT zk_xact_lock('/regress/xact_a');
RELEASE s;
PREPARE TRANSACTION 'zklock_regress';
SELECT * FROM held;
-- session-level locks stay with the session, and those rolled back are no obstacle
BEGIN;
SELECT zk_lock('/regress/xact_b');
SAVEPOINT s;
SELECT zk_xact_lock('/regress/xact_a');
ROLLBACK TO s;
CREATE TABLE xact_prepared ();
PREPARE TRANSACTION 'zklock_regress';
SELECT * FROM held;
COMMIT PREPARED 'zklock_regress';
SELECT * FROM held;
DROP TABLE xact_prepared;
SELECT zk_unlock('/regress/xact_b');

-- a lock taken as late as in a deferred trigger
CREATE TABLE xact_trigger (path text);
CREATE FUNCTION xact_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE INFO 'at commit: %', zk_xact_lock(NEW.path);
  RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON xact_trigger DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION xact_trigger();
BEGIN;
INSERT INTO xact_trigger VALUES ('/regress/xact_a');
SELECT * FROM held;
COMMIT;
SELECT * FROM held;
-- may keep the transaction from being prepared, too
BEGIN;
INSERT INTO xact_trigger VALUES ('/regress/xact_a');
PREPARE TRANSACTION 'zklock_regress';
SELECT * FROM held;
DROP TABLE xact_trigger;
DROP FUNCTION xact_trigger;
