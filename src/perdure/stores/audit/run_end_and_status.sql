-- A run that has finished has an end; one that has an end has finished, or was cancelled.
SELECT CAST(id AS text), 'is ' || status || CASE WHEN ended_at IS NULL THEN ' without' ELSE ' with' END || ' an end'
FROM perdure_runs
WHERE (ended_at IS NULL AND status IN ('completed', 'partial_success', 'failed'))
OR (ended_at IS NOT NULL AND status NOT IN ('completed', 'partial_success', 'failed', 'cancelled'))
