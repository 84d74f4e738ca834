-- zk_break_lock(): what it does not find, what it refuses, and to whom.
\t on
\a
-- nothing but contenders can be named; none of that path and name is there
SELECT replace(outcome(format('SELECT zk_break_lock(''/regress/break'', %L)', node)), E'\x1b', '<ESC>') FROM unnest(ARRAY[
  'config', 'lock-', 'lock-99999999999', '../lock-0000000000', 'x/lock-0000000000', '', E'\x1block-0000000000', NULL,
  '_c_00000000-0000-0000-0000-000000000001-lock-0000000000']) node;
SELECT outcome($$ SELECT zk_break_lock(NULL, NULL) $$);
SELECT outcome($$ SELECT zk_break_lock('b', 'lock-0000000000') $$);
SELECT zk_break_lock('/regress/break');
SELECT zk_lock('/regress/break'), zk_unlock('/regress/break');
SELECT zk_break_lock('/regress/break'), zk_break_lock('/regress/break', '_c_00000000-0000-0000-0000-000000000001-lock-0000000000');

-- with EXECUTE it is for administrators, and for the paths allowed
CREATE ROLE regress_zklock_plain;
CREATE ROLE regress_zklock_signals IN ROLE pg_signal_backend;
GRANT EXECUTE ON FUNCTION zk_break_lock(text), zk_break_lock(text, text) TO regress_zklock_plain, regress_zklock_signals;
CREATE FUNCTION calls(path text) RETURNS TABLE (call text, ends text) LANGUAGE sql AS $$
  SELECT call, outcome(format('SELECT ' || call, path)) FROM unnest(ARRAY[
    'zk_break_lock(%L)', 'zk_break_lock(%L, ''lock-0000000000'')']) call
$$;
SET zklock.allowed_paths = '/regress/break';
SET ROLE regress_zklock_plain;
SELECT * FROM calls('/regress/break');
SET ROLE regress_zklock_signals;
SELECT * FROM calls('/regress/other');
SELECT * FROM calls('/regress/break');
RESET ROLE;
RESET zklock.allowed_paths;
DROP FUNCTION calls;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM regress_zklock_plain, regress_zklock_signals;
DROP ROLE regress_zklock_plain, regress_zklock_signals;
