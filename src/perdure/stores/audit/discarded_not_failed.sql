SELECT id, 'is discarded and ' || state FROM perdure_jobs
WHERE discarded_at IS NOT NULL AND state <> 'failed'
