-- The receipts of attempts that the same writer settled by an earlier sending of the same records.
SELECT a.job, a.token, a.state, a.due_at, j.token, j.worker
FROM jsonb_to_recordset(%(records)s::jsonb) AS r (no bigint, token bigint)
JOIN perdure_attempts AS a ON a.job = r.no AND a.token = r.token
JOIN perdure_jobs AS j ON j.no = a.job
WHERE a.settled_by IS NOT DISTINCT FROM %(by)s::bigint AND a.settled_by IS NOT NULL
