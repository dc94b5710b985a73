SELECT id, 'is in the unknown state ' || state FROM perdure_jobs
WHERE state NOT IN ('queued', 'processing', 'succeeded', 'failed', 'cancelled')
