-- Only a deadline that has passed while the job waited ends it without an attempt; and a dead letter is dead again
-- when the run that drove it again is cancelled, by the attempt or the deadline of an earlier life.
SELECT j.id, 'failed without an attempt that says so'
FROM perdure_jobs AS j
WHERE j.state = 'failed' AND NOT EXISTS (
    SELECT 1 FROM perdure_attempts AS a
    WHERE a.job = j.no AND a.state = 'failed' AND (a.life = j.life OR (a.life < j.life AND EXISTS (
        SELECT 1 FROM perdure_runs AS r WHERE r.no = j.redrive_run AND r.status = 'cancelled'
    )))
)
AND (j.failed_reason <> 'expired' OR (
    (j.deadline_at IS NULL OR j.deadline_at > j.finished_at) AND NOT (j.life > 1 AND EXISTS (
        SELECT 1 FROM perdure_runs AS r WHERE r.no = j.redrive_run AND r.status = 'cancelled'
    ))
))
