-- Jobs that are to be driven again in the very run to which they belong.
SELECT j.id, j.run FROM jsonb_to_recordset(%(revivals)s::jsonb) AS r (no bigint, run bigint)
CROSS JOIN LATERAL (
    SELECT o.id::text AS id, o.run FROM perdure_jobs AS o WHERE o.no = r.no LIMIT 1
) AS j
WHERE j.run = r.run
LIMIT 1
