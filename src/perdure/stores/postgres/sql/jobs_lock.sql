-- Lock the jobs that still have the tokens seen, in the order of numbers, and wait for none; the numbers of those
-- that others hold come back. With an owner only his jobs are looked at.
WITH seen AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(seen)s::jsonb) AS s (no bigint, token bigint)
),
held AS MATERIALIZED (
    SELECT j.no FROM (SELECT * FROM seen ORDER BY no) AS s
    CROSS JOIN LATERAL (
        SELECT o.no FROM perdure_jobs AS o
        WHERE o.no = s.no AND o.token = s.token AND (%(owner)s::text IS NULL OR o.owner = %(owner)s::text)
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS j
)
SELECT j.no FROM seen AS s
CROSS JOIN LATERAL (
    SELECT o.no FROM perdure_jobs AS o
    WHERE o.no = s.no AND o.token = s.token AND (%(owner)s::text IS NULL OR o.owner = %(owner)s::text)
    LIMIT 1
) AS j
WHERE j.no <> ALL (ARRAY(SELECT h.no FROM held AS h))
