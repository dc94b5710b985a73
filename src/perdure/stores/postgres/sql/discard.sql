-- Dead letters are dealt with; they stay failed. Guarded by (no, token); only a failed job has a
-- failed_reason. Rows are locked in the order of numbers.
WITH seen AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(targets)s::jsonb) AS s (no bigint, token bigint)
),
held AS MATERIALIZED (
    SELECT j.no FROM (SELECT * FROM seen ORDER BY no) AS s
    CROSS JOIN LATERAL (
        SELECT o.no FROM perdure_jobs AS o
        WHERE o.no = s.no AND o.token = s.token AND o.state = 'failed' AND o.discarded_at IS NULL
        AND (%(owner)s::text IS NULL OR o.owner = %(owner)s::text)
        LIMIT 1
        FOR UPDATE
    ) AS j
)
UPDATE perdure_jobs AS j SET
    discarded_at = %(now)s::bigint, token = j.token + 1, updated_at = %(now)s::bigint
FROM held
WHERE j.no = held.no
RETURNING j.no, j.token - 1
