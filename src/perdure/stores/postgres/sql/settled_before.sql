-- The receipts of attempts that the same writer settled by an earlier sending of the same records.
SELECT a.job, a.token, a.state, a.due_at, j.token, j.worker
FROM jsonb_to_recordset(%(records)s::jsonb) AS r (no bigint, token bigint)
CROSS JOIN LATERAL (
    SELECT * FROM perdure_attempts AS b WHERE b.job = r.no AND b.token = r.token LIMIT 1
) AS a
CROSS JOIN LATERAL (SELECT * FROM perdure_jobs AS k WHERE k.no = r.no LIMIT 1) AS j
WHERE a.settled_by = %(by)s::bigint
