-- Session-level locks.
\t on
\a
-- acquisitions count, whatever the call; a session never waits for itself
SELECT zk_lock('/regress/lock_a');
SELECT * FROM held;
SELECT zk_lock('/regress/lock_a', NULL);
SELECT zk_lock('/regress/lock_a', '0');
SELECT zk_lock('/regress/lock_a', timeout => '1 day');
SELECT zk_try_lock('/regress/lock_a');
SELECT * FROM held;
-- each unlock undoes one
SELECT zk_unlock('/regress/lock_a') FROM generate_series(1, 4);
SELECT * FROM held;
SELECT zk_unlock('/regress/lock_a');
SELECT * FROM held;
-- and one too many is a warning
SELECT zk_unlock('/regress/lock_a');
SELECT zk_unlock('/regress/lock_never');
-- after which everything goes on as before
SELECT zk_lock('/regress/lock_a');
SELECT zk_unlock('/regress/lock_a');
SELECT * FROM held;

-- a free lock is had at once, if only by not waiting
SELECT zk_lock('/regress/lock_a', '0'), zk_try_lock('/regress/lock_b'),
  zk_lock('/regress/lock_c', '1 month');
SELECT * FROM held;
-- paths are independent of each other, of those below them too
SELECT zk_lock('/regress/lock_a/below'), zk_lock('/regress/LOCK_A');
SELECT zk_unlock('/regress/lock_b'), zk_unlock('/regress/lock_a');
SELECT * FROM held;
SELECT zk_unlock_all();
SELECT * FROM held;

-- like advisory locks they have nothing to do with transactions
BEGIN;
SELECT zk_lock('/regress/lock_a');
ROLLBACK;
SELECT * FROM held;
BEGIN;
SELECT zk_unlock('/regress/lock_a');
SELECT zk_lock('/regress/lock_b');
SAVEPOINT s;
SELECT zk_lock('/regress/lock_c');
ROLLBACK TO s;
SELECT * FROM held;
ROLLBACK;
SELECT * FROM held;
-- not even a block that is rolled back undoes an unlock
DO $$
BEGIN
  PERFORM zk_lock('/regress/lock_c'), zk_unlock('/regress/lock_b');
  RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
  RAISE INFO 'held: %', (SELECT string_agg(path, ', ') FROM held);
END
$$;
SELECT * FROM held;
-- and survive an error of their own statement
SELECT zk_lock('/regress/lock_d'), 1 / (random() * 0)::int;
SELECT * FROM held;
SELECT zk_unlock_all();

-- zk_unlock_all undoes all acquisitions, and has nothing to say against none
SELECT zk_lock('/regress/lock_a') AND zk_lock('/regress/lock_a') AND zk_lock('/regress/lock_b');
SELECT zk_unlock_all();
SELECT * FROM held;
SELECT zk_unlock_all();
SELECT zk_unlock('/regress/lock_a');

-- DISCARD ALL releases as much, and no other DISCARD does
SELECT zk_lock('/regress/lock_a') AND zk_lock('/regress/lock_a') AND zk_lock('/regress/lock_b');
DISCARD PLANS;
DISCARD SEQUENCES;
DISCARD TEMP;
SELECT * FROM held;
-- it does nothing where it is not allowed
BEGIN;
DISCARD ALL;
ROLLBACK;
SELECT * FROM held;
DISCARD ALL;
SELECT * FROM held;
SELECT zk_try_lock('/regress/lock_a');
SELECT * FROM held;

-- the end of the session releases: the next one gets the lock, its first acquisition
\c
SELECT * FROM held;
SELECT zk_lock('/regress/lock_a', '1 min');
SELECT * FROM held;
SELECT zk_unlock('/regress/lock_a');

-- more paths than the local table begins with, and as many again
SELECT count(*) FILTER (WHERE zk_lock('/regress/lock_' || n)) FROM generate_series(1, 40) n;
SELECT count(*), sum(count) FROM held;
SELECT count(*) FILTER (WHERE zk_unlock('/regress/lock_' || n)) FROM generate_series(1, 40, 2) n;
SELECT count(*), sum(count) FROM held;
SELECT zk_unlock_all();
SELECT count(*) FROM held;
