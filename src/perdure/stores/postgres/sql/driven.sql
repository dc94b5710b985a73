-- For each of these jobs the first other one of its owner, pipeline and key that is, or was last, driven again in the
-- run in which this one is to be.
SELECT j.no, s.id
FROM jsonb_to_recordset(%(revivals)s::jsonb) AS r (no bigint, run bigint)
CROSS JOIN LATERAL (
    SELECT o.no, o.owner, o.pipeline, o.key FROM perdure_jobs AS o WHERE o.no = r.no LIMIT 1
) AS j
CROSS JOIN LATERAL (
    SELECT k.id FROM (
        SELECT o.no, o.id::text AS id, o.redrive_run FROM perdure_jobs AS o
        WHERE o.owner = j.owner AND o.pipeline = j.pipeline AND o.key = j.key
        OFFSET 0
    ) AS k
    WHERE k.no <> j.no AND k.redrive_run = r.run
    ORDER BY k.no LIMIT 1
) AS s
WHERE j.key IS NOT NULL
