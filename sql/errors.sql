-- What is refused, and how.
\t on
\a
-- every way in which a path can be wrong has a DETAIL of its own
CREATE TABLE bad_path (n serial, path text);
INSERT INTO bad_path (path) VALUES
  (''), ('regress'), ('regress/a'), (' /regress'), ('/'), ('//'), ('/regress//a'), ('//regress'), ('/regress/'),
  ('/regress/a/'), ('/.'), ('/..'), ('/regress/.'), ('/regress/../a'), ('/./regress'),
  ('/zookeeper'), ('/zookeeper/quota'), ('/zookeeper/a/b');
SELECT outcome(format('SELECT zk_lock(%L)', path)) FROM bad_path ORDER BY n;
-- characters that are not for printing, each in the middle of a path
CREATE FUNCTION path_with(code int) RETURNS text LANGUAGE sql AS $$ SELECT '/regress/' || chr(code) || 'a' $$;
SELECT to_hex(code), replace(outcome(format('SELECT zk_lock(%L)', path_with(code))), path_with(code), '<path>')
FROM unnest(ARRAY[1, 10, 31, 127, 128, 133, 159, 57344, 63743, 65520, 65533, 65535, 65536, 128512]) code;
INSERT INTO bad_path (path) SELECT path_with(code) FROM unnest(ARRAY[10, 127, 57344, 65520, 128512]) code;
SELECT regexp_replace(outcome(format('SELECT zk_lock(%L)', '/regress/' || repeat('x', 1015))), 'x{20,}', '<xxx>');
-- the limit is one of bytes in UTF-8: here half as many characters
SELECT regexp_replace(outcome(format('SELECT zk_lock(%L)', '/regress/x' || repeat('ä', 507))), 'ä{20,}', '<äää>');
-- what is long is shown in part, and in whole characters
SELECT max(octet_length(split_part(ends, '"', 2))), count(DISTINCT length(ends)) FROM unnest(ARRAY[
  '/regress//' || repeat('ä', 500000), '/regress//x' || repeat('ä', 500000)]) path,
  LATERAL outcome(format('SELECT zk_lock(%L)', path)) ends WHERE ends LIKE '22023:%';
SELECT call, octet_length(max(ends)) FROM unnest(ARRAY[
  'zk_lock_tree(''/regress/a'', %1$L)', 'zk_break_lock(''/regress/a'', %1$L)', 'zk_fence(%1$L, 1)']) call,
  LATERAL outcome(format('SELECT ' || call, '/regress/' || repeat('x', 1000000))) ends WHERE ends LIKE '22023:%'
GROUP BY call ORDER BY call;
SELECT outcome('SELECT zk_lock(NULL::text)');
-- a literal of an array needs its type
SELECT outcome($$ SELECT zk_lock('{/regress/a,/regress/b}') $$);
-- the same for each function that takes a path
INSERT INTO bad_path (path) VALUES (NULL), ('/regress/' || repeat('x', 1015));
SELECT call, count(*) AS as_zk_lock
FROM bad_path, unnest(ARRAY['zk_xact_lock', 'zk_try_lock', 'zk_try_xact_lock', 'zk_unlock', 'zk_fencing_token']) call
WHERE ARRAY(SELECT outcome(format('SELECT zk_lock(%L::text)', path)))
  = ARRAY(SELECT outcome(format('SELECT %s(%L::text)', call, path)))
GROUP BY call ORDER BY call;
SELECT count(*) FROM bad_path;
DROP TABLE bad_path;
DROP FUNCTION path_with;
SELECT count(*) FROM held;

-- what looks wrong but is not
SELECT zk_lock('/regress/errors_' || repeat('x', 1023 - 16));
SELECT zk_lock('/regress/errors' || repeat('ä', 504));
SELECT zk_lock('/zookeeperish'), zk_lock('/regress/zookeeper'), zk_lock('/regress/...'), zk_lock('/regress/.errors');
SELECT zk_lock('/regress/errors with blanks, commas and "quotes"'), zk_lock(U&'/regress/errors\00A0\F900\FFEF');
SELECT count(*) FROM held;
SELECT zk_unlock_all();

-- timeouts: negative as a whole is refused, the least bit
SELECT outcome($$ SELECT zk_lock('/regress/errors', '-1 s') $$);
SELECT outcome($$ SELECT zk_lock('/regress/errors', '-1 ms') $$);
SELECT outcome($$ SELECT zk_lock('/regress/errors', '-1 microsecond') $$);
SELECT outcome($$ SELECT zk_lock('/regress/errors', '-1 day') $$);
SELECT outcome($$ SELECT zk_lock('/regress/errors', '-1 month') $$);
SELECT outcome($$ SELECT zk_lock('/regress/errors', '1 day -25 hours') $$);
SELECT outcome($$ SELECT zk_lock('/regress/errors', '1 month -31 days') $$);
SELECT outcome($$ SELECT zk_xact_lock('/regress/errors', '-1 s') $$);
SELECT outcome($$ SELECT zk_lock('{/regress/errors}'::text[], '-1 microsecond') $$);
SELECT outcome($$ SELECT zk_xact_lock('{/regress/errors}'::text[], '-1 s') $$);
SELECT * FROM held;
-- days have 24 hours and months 30 days; there is no longest timeout
SET intervalstyle = postgres;
SELECT timeout, zk_lock('/regress/errors', timeout)
FROM unnest(ARRAY['0', '1 microsecond', '-1 day 24 hours', '-1 day 25 hours', '1 month -30 days', '1 month -29 days',
  '25 days', '1 year', '178000000 years']::interval[]) timeout;
-- as long as can be
SELECT zk_lock('/regress/errors', '1 hour'::interval * 2562047788);
SELECT * FROM held;
SELECT zk_unlock_all();
-- a wrong path comes before a wrong timeout
SELECT outcome($$ SELECT zk_lock('/regress/', '-1 s') $$);

-- a token is the holder's
SELECT outcome($$ SELECT zk_fencing_token('/regress/errors') $$);
SELECT zk_lock('/regress/errors');
SELECT outcome($$ SELECT zk_fencing_token('/regress/errors_other') $$);
SELECT zk_fencing_token('/regress/errors') > 0;
SELECT zk_unlock('/regress/errors');
SELECT outcome($$ SELECT zk_fencing_token('/regress/errors') $$);

-- zklock.allowed_paths: exact paths, and all below a prefix
SHOW zklock.allowed_paths;
SET zklock.allowed_paths = '/regress/errors, /regress/below/*,/regress/blank  ';
SELECT path, outcome(format('SELECT zk_try_lock(%L)', path))
FROM unnest(ARRAY['/regress/errors', '/regress/below/a', '/regress/below/a/b', '/regress/blank',
  '/regress', '/regress/errors/a', '/regress/errorsa', '/regress/error', '/regress/ERRORS',
  '/regress/below', '/regress/belowa', '/regress/below_other', '/regress/belo', '/other']) path;
-- whether it is a path at all comes first
SELECT outcome($$ SELECT zk_lock('/regress/below/') $$);
SELECT zk_unlock_all();
-- for each function that locks
SELECT call, outcome(format('SELECT %s(%s)', call, argument))
FROM unnest(ARRAY['zk_lock', 'zk_xact_lock', 'zk_try_lock', 'zk_try_xact_lock', 'zk_lock', 'zk_xact_lock'])
    WITH ORDINALITY AS f (call, n),
  LATERAL (SELECT CASE WHEN n <= 4 THEN quote_literal('/other')
    ELSE $$ARRAY['/regress/errors', '/other']$$ END) AS a (argument)
ORDER BY n;
SELECT * FROM held;
-- what is held is there to be used and unlocked, even if it may no longer be locked
RESET zklock.allowed_paths;
SELECT zk_lock('/other'), zk_lock('/other'), zk_lock('/regress/errors');
SET zklock.allowed_paths = '/regress/errors';
SELECT outcome($$ SELECT zk_lock('/other') $$);
SELECT zk_fencing_token('/other') > 0, zk_unlock('/other');
SELECT zk_unlock(ARRAY['/regress/errors', '/other']);
SELECT * FROM held;
SELECT zk_unlock('/other');
SET zklock.allowed_paths = '/regress/errors', '/regress/below/*';
SHOW zklock.allowed_paths;
SELECT outcome($$ SELECT zk_try_lock('/regress/below/a') $$);
SELECT zk_unlock_all();
-- nothing at all
SET zklock.allowed_paths = '';
SELECT outcome($$ SELECT zk_lock('/regress/errors') $$);
-- values that cannot be right
SELECT outcome($$ SET zklock.allowed_paths = 'regress' $$);
SELECT outcome($$ SET zklock.allowed_paths = '/regress/*, *' $$);
SELECT outcome($$ SET zklock.allowed_paths = '/regress/*; /a', 'b' $$);
SHOW zklock.allowed_paths;
RESET zklock.allowed_paths;
SELECT zk_lock('/other'), zk_unlock('/other');
