-- The receipt of an attempt that was settled by an earlier sending of the same record.
SELECT a.state, a.due_at, j.token, j.worker, j.state
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
WHERE a.job = ? AND a.token = ?
