-- What a new life of a job depends on, if it is still the failed one that was seen and the owner's, where one is given: what
-- it is counted as. In the closed lanes of a cancelled run it would never end: there is no new life in one.
SELECT run, redrive_run, lane, discarded_at, fingerprint, owner, pipeline, stage, failed_reason, error_kind, error_code
FROM perdure_jobs
WHERE no = ?1 AND token = ?2 AND failed_reason IS NOT NULL AND (?4 IS NULL OR owner = ?4)
AND NOT EXISTS (
    SELECT 1 FROM perdure_runs AS r
    WHERE r.no = coalesce(?3, redrive_run, run) AND r.status = 'cancelled'
)
