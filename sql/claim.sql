-- Slots that are claimed: which there are, and who may claim them.
\t on
\a
-- this may have run before
SELECT zk_claim_reset('/regress/claims/far') IS NOT NULL;
-- from the first slot that there is to the last
SELECT zk_claim('/regress/claims/far', '4714-11-24 00:00:00+00 BC');
SELECT slot = '4714-11-24 00:00:00+00 BC' FROM zk_last_claim('/regress/claims/far');
SELECT zk_claim('/regress/claims/far', '4000-01-01 BC');
SELECT zk_claim('/regress/claims/far', '294276-12-31 23:59:59.999999+00');
SELECT zk_claim('/regress/claims/far', '294276-12-31 23:59:59.999998+00');
SELECT slot = '294276-12-31 23:59:59.999999+00' FROM zk_last_claim('/regress/claims/far');
SELECT outcome($$ SELECT zk_claim('/regress/claims/far', 'infinity') $$);
SELECT outcome($$ SELECT zk_claim('/regress/claims/new', '-infinity') $$);

-- a slot is claimed once, and none before it afterwards; each path has its own
SELECT zk_claim_reset('/regress/claims/one') IS NOT NULL, zk_claim_reset('/regress/claims/two') IS NOT NULL;
SELECT slot, zk_claim('/regress/claims/one', slot::timestamptz) FROM unnest(ARRAY[
  '2026-11-22', '2026-11-22', '2026-11-21', '2026-11-22 00:00:00.000001', '2026-11-22']) slot;
SELECT zk_claim('/regress/claims/two', '2026-11-22');
SELECT count(*) FROM held;
-- who claimed it, and when
SELECT slot = '2026-11-22', claimed_at BETWEEN now() - interval '1 min' AND now() + interval '1 min', server <> '',
  pid = pg_backend_pid(), usename = session_user, application_name = current_setting('application_name')
FROM zk_last_claim('/regress/claims/two');
-- it is forgotten
SELECT zk_claim_reset('/regress/claims/two'), zk_claim_reset('/regress/claims/two'), zk_claim_reset('/regress/claims/never');
SELECT slot, pid = pg_backend_pid() FROM zk_last_claim('/regress/claims/two');
SELECT count(*) FROM zk_last_claim('/regress/claims/never');
SELECT zk_claim('/regress/claims/two', '2026-01-01');
-- whatever becomes of the transaction
BEGIN;
SELECT zk_claim('/regress/claims/two', '2026-01-02');
ROLLBACK;
SELECT zk_claim('/regress/claims/two', '2026-01-02');
-- slots that were missed are caught up, the oldest first; the first one is the present one
SELECT zk_claim_reset('/regress/claims/next') IS NOT NULL, zk_claim_reset('/regress/claims/months') IS NOT NULL;
SELECT upto, zk_claim_next('/regress/claims/next', '1 day', upto::timestamptz) FROM unnest(ARRAY['2026-11-22 05:00+00',
  '2026-11-22 23:59+00', '2026-11-25 05:00+00', '2026-11-25 05:00+00', '2026-11-25 05:00+00', '2026-11-25 05:00+00']) upto;
-- so many of them at most; one between two slots is behind the first of these
SELECT zk_claim_next('/regress/claims/next', '1 day', '2026-12-25 05:00+00', 2) FROM generate_series(1, 3);
SELECT zk_claim('/regress/claims/next', '2026-12-26 13:00+00'), zk_claim_next('/regress/claims/next', '1 day', '2026-12-27 00:00+00');
-- weeks begin with a Monday, months and years with their first day, in UTC
SELECT to_char(zk_claim_next('/regress/claims/next', '7 days', '2027-02-24 12:00+00') AT TIME ZONE 'UTC', 'Dy YYYY-MM-DD HH24:MI');
SELECT zk_claim_next('/regress/claims/months', step::interval, upto::timestamptz) AT TIME ZONE 'UTC'
FROM (VALUES ('1 month', '1997-03-31 23:59+00'), ('1 month', '1997-05-01+00'), ('1 month', '1997-05-01+00'), ('1 year', '1999-12-31+00'),
  ('3 months', '2000-12-31+00'), ('90 min', '2001-01-01 01:31+00')) t (step, upto);
SELECT outcome(format('SELECT zk_claim_next(%L, %L, %L, %L)', '/regress/claims/next', step, upto, "limit"))
FROM (VALUES ('0', 'now', 1), ('-1 day', 'now', 1), ('1 month 1 day', 'now', 1), ('2147483647 days', 'now', 1), (NULL, 'now', 1),
  ('1 day', NULL, 1), ('1 day', 'infinity', 1), ('1 day', 'now', 0), ('1000 years', '4000-01-01 BC', 1)) t (step, upto, "limit");
-- periods are counted backwards as well, as far as timestamps go
SELECT zk_claim_reset('/regress/claims/old') IS NOT NULL;
SELECT outcome(format('SELECT zk_claim_next(%L, %L, %L) AT TIME ZONE %L', '/regress/claims/old', step, upto, 'UTC'))
FROM (VALUES ('5000 years', '4000-01-01 BC'), ('1 month', '0044-03-15+00 BC'), ('10 days', '0044-03-21+00 BC')) t (step, upto);
-- a path and those below it have claims of their own, beside a lock
SELECT path, zk_claim(path, clock_timestamp())
FROM unnest(ARRAY['/regress/claims/tree', '/regress/claims/tree/leaf', '/regress/claims/tree/leaf/leaf']) path;
SELECT zk_lock('/regress/claims/tree/lock');
SELECT path, zk_claim(path, clock_timestamp()) FROM unnest(ARRAY['/regress/claims/tree', '/regress/claims/tree/leaf']) path;
SELECT zk_unlock('/regress/claims/tree/lock');
-- so many missing levels are not created, and where none is to be created none is; nor by a reset
SELECT zk_claim('/regress/claims/levels' || repeat('/y', 14), clock_timestamp());
SELECT outcome($$ SELECT zk_claim('/regress/claims/many' || repeat('/x', 17), now()) $$);
SET zklock.parent_nodes = existing;
SELECT path, outcome(format('SELECT zk_claim(%L, now())', '/regress/claims/' || path))
FROM unnest(ARRAY['missing', 'missing', 'many', 'never']) path;
RESET zklock.parent_nodes;

-- arguments
SELECT outcome($$ SELECT zk_claim(NULL, now()) $$);
SELECT outcome($$ SELECT zk_claim('/regress/claims/new', NULL) $$);
SELECT outcome($$ SELECT zk_claim('regress', now()) $$);

-- a role may claim below its paths, and not reset what it has claimed
CREATE ROLE regress_zklock_batch;
GRANT EXECUTE ON FUNCTION zk_claim, zk_claim_reset, zk_last_claim TO regress_zklock_batch;
SET zklock.allowed_paths = '/regress/claims/batch/*';
SET ROLE regress_zklock_batch;
SELECT zk_claim('/regress/claims/batch/job', clock_timestamp());
SELECT outcome($$ SELECT zk_claim('/regress/claims/far', now()) $$);
SELECT outcome($$ SELECT zk_last_claim('/regress/claims/far') $$);
SELECT outcome($$ SELECT zk_claim_reset('/regress/claims/far') $$);
SELECT outcome($$ SELECT zk_claim_reset('/regress/claims/batch/job') $$);
RESET ROLE;
RESET zklock.allowed_paths;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM regress_zklock_batch;
DROP ROLE regress_zklock_batch;
