-- Only a deadline that has passed while the job waited ends it without an attempt.
SELECT j.id, 'failed without an attempt that says so'
FROM perdure_jobs AS j
WHERE j.state = 'failed' AND NOT EXISTS (
    SELECT 1 FROM perdure_attempts AS a
    WHERE a.job = j.no AND a.life = j.life AND a.state = 'failed'
)
AND (j.failed_reason <> 'expired' OR j.deadline_at IS NULL OR j.deadline_at > j.finished_at)
