-- The receipts of attempts that the same writer settled by an earlier sending of the same records.
SELECT a.job, a.token, a.state, a.due_at, j.token, j.worker
FROM jsonb_to_recordset(%(records)s::jsonb) AS r (no bigint, token bigint)
CROSS JOIN LATERAL (
    SELECT * FROM perdure_attempts AS o WHERE o.job = r.no AND o.token = r.token LIMIT 1
) AS a
CROSS JOIN LATERAL (SELECT h.token, h.worker FROM perdure_jobs AS h WHERE h.no = a.job LIMIT 1) AS j
WHERE a.settled_by IS NOT DISTINCT FROM %(by)s::bigint AND a.settled_by IS NOT NULL
