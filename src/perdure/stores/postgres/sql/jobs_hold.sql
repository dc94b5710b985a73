-- Lock the jobs that still have the tokens seen, in the order of numbers, and wait for none; the numbers of those
-- that others hold come back.
WITH seen AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(seen)s::jsonb) AS s (no bigint, token bigint)
),
held AS MATERIALIZED (
    SELECT j.no FROM seen AS s JOIN perdure_jobs AS j ON j.no = s.no AND j.token = s.token
    ORDER BY j.no
    FOR UPDATE OF j SKIP LOCKED
)
SELECT j.no FROM seen AS s JOIN perdure_jobs AS j ON j.no = s.no AND j.token = s.token
WHERE j.no <> ALL (ARRAY(SELECT h.no FROM held AS h))
