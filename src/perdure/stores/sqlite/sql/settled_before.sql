-- The receipt of an attempt that the same writer settled by an earlier sending of the same record.
SELECT a.state, a.due_at, j.token, j.worker
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
WHERE a.job = :job AND a.token = :token AND a.settled_by = :by
