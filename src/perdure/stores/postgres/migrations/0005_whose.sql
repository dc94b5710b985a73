-- compat_min: 6
-- Whose request a job is, and whose its deadline is. The moment by which it stands in line may be its caller's now, so the
-- length of a deadline can no longer be told from that moment.

ALTER TABLE perdure_jobs
    ADD COLUMN request_id text,     -- what its caller gave; without it, the job's id serves
    ADD COLUMN deadline_us bigint,  -- the total time of each life that its caller brought
    ADD COLUMN policies_us bigint;  -- the one that its policies gave to this life instead

-- Nobody can say of older jobs whose it was; until now each life had as long as the first.
UPDATE perdure_jobs SET deadline_us = deadline_at - order_at WHERE deadline_at IS NOT NULL;
