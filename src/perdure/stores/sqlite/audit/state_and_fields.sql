-- Lease fields only while processing, a reason only when failed, an end only when finished.
SELECT id, 'is ' || state || ' with ready ' || quote(ready) || ', worker ' || quote(worker)
    || ', failed_reason ' || quote(failed_reason) || ', finished_at ' || quote(finished_at)
FROM perdure_jobs
WHERE (ready IS NOT NULL) <> (state = 'queued')
OR (worker IS NOT NULL) <> (state = 'processing')
OR (failed_reason IS NOT NULL) <> (state = 'failed')
OR (finished_at IS NOT NULL) <> (state IN ('succeeded', 'failed', 'cancelled'))
