-- Which jobs can be cancelled: those that are as they were seen, have not ended, and are the owner's, if one is given. They
-- are locked, in the order of numbers.
SELECT j.no, s.token
FROM (
    SELECT * FROM jsonb_to_recordset(%(targets)s::jsonb) AS s (no bigint, token bigint) ORDER BY no
) AS s
CROSS JOIN LATERAL (
    SELECT o.no FROM perdure_jobs AS o
    WHERE o.no = s.no AND o.token = s.token AND o.finished_at IS NULL
    AND (%(owner)s::text IS NULL OR o.owner = %(owner)s::text)
    LIMIT 1
    FOR UPDATE
) AS j
