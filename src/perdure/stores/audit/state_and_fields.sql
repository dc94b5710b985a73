-- Lease fields only while processing, a reason only when failed, an end only when finished.
SELECT id, 'is ' || state || ' with ready ' || coalesce(CAST(ready AS text), 'null')
    || ', worker ' || coalesce(CAST(worker AS text), 'null')
    || ', failed_reason ' || coalesce(failed_reason, 'null')
    || ', finished_at ' || coalesce(CAST(finished_at AS text), 'null')
FROM perdure_jobs
WHERE (ready IS NOT NULL) <> (state = 'queued')
OR (worker IS NOT NULL) <> (state = 'processing')
OR (failed_reason IS NOT NULL) <> (state = 'failed')
OR (finished_at IS NOT NULL) <> (state IN ('succeeded', 'failed', 'cancelled'))
