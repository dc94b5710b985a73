-- Jobs above a number; the last column is whether a run that is not over still needs them: their keys say what
-- of its items it had, and their results are read when it is over.
SELECT j.no, j.token, j.pipeline, j.state, j.enqueued_at, j.finished_at, j.discarded_at,
    (j.run IS NOT NULL OR j.redrive_run IS NOT NULL) AND EXISTS (
        SELECT 1 FROM perdure_runs AS r
        WHERE r.no IN (j.run, j.redrive_run) AND r.ended_at IS NULL
    )
FROM perdure_jobs AS j
WHERE j.no > :after ORDER BY j.no LIMIT :limit
