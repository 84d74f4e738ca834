-- Several locks at once: text[].
\t on
\a
-- each path once, whatever the order asked for
SELECT zk_lock(ARRAY['/regress/array_b', '/regress/array_a', '/regress/array_b', '/regress/array_Z',
  '/regress/array_ä']);
SELECT * FROM held;
-- already held: counts, and is not locked again
SELECT zk_lock(ARRAY['/regress/array_a', '/regress/array_c'], '0');
SELECT * FROM held;
SELECT zk_lock('/regress/array_a');
SELECT * FROM held;
-- unlocked as it was locked: each path once
SELECT zk_unlock(ARRAY['/regress/array_a', '/regress/array_c', '/regress/array_a']);
SELECT * FROM held;
-- what is not held is a warning each, and does not keep the others locked
SELECT zk_unlock(ARRAY['/regress/array_Z', '/regress/array_never', '/regress/array_c', '/regress/array_ä']);
SELECT * FROM held;
SELECT zk_unlock_all();

-- other kinds of arrays
SELECT zk_lock('{/regress/array_a}'::text[]);
SELECT zk_lock('[7:8]={/regress/array_a,/regress/array_b}'::text[]);
SELECT zk_lock('{/regress/array_a}'::varchar[], '30 s');
SELECT zk_lock(paths => ARRAY['/regress/array_a'], timeout => NULL);
SELECT * FROM held;
SELECT zk_unlock_all();
-- many
SELECT zk_lock(array_agg('/regress/array_' || n)) FROM generate_series(1, 100) n;
SELECT count(*), sum(count) FROM held;
SELECT zk_unlock(array_agg('/regress/array_' || n)) FROM generate_series(1, 100) n;
SELECT count(*) FROM held;

-- at transaction level
BEGIN;
SELECT zk_xact_lock(ARRAY['/regress/array_b', '/regress/array_a', '/regress/array_b']);
SAVEPOINT s;
SELECT zk_xact_lock(ARRAY['/regress/array_c', '/regress/array_a'], '30 s');
SELECT * FROM held;
SELECT zk_unlock(ARRAY['/regress/array_b', '/regress/array_c']);
ROLLBACK TO s;
SELECT * FROM held;
COMMIT;
SELECT * FROM held;

-- what is no list of paths; nothing is locked then, not even those that were right
SELECT outcome($$ SELECT zk_lock(NULL::text[]) $$);
SELECT outcome($$ SELECT zk_lock('{}'::text[]) $$);
SELECT outcome($$ SELECT zk_lock('{/regress/array_a,NULL}'::text[]) $$);
SELECT outcome($$ SELECT zk_lock('{{/regress/array_a,/regress/array_b},{/regress/array_c,/regress/array_d}}'::text[]) $$);
SELECT outcome($$ SELECT zk_lock('{{/regress/array_a}}'::text[]) $$);
SELECT outcome($$ SELECT zk_lock('{/regress/array_a,/regress/,/regress/array_c}'::text[]) $$);
SELECT outcome($$ SELECT zk_lock('{/regress/array_a}'::text[], '-1 s') $$);
SELECT * FROM held;
-- so for each function that takes one
SELECT zk_lock('/regress/array_a');
SELECT list, call, outcome(format('SELECT %s(%L::text[])', call, list))
FROM unnest(ARRAY[NULL, '{}', '{/regress/array_a,NULL}', '{{/regress/array_a}}', '{/regress/array_a,relative}']) list,
  unnest(ARRAY['zk_xact_lock', 'zk_unlock']) call;
SELECT * FROM held;
SELECT zk_unlock('/regress/array_a');
