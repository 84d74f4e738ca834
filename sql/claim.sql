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
