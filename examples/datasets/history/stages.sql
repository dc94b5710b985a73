-- How reliable is each stage?
SELECT stage, attempts, succeeded, retried, failed, retry_rate, p50_s, p95_s
FROM perdure_run_stages
WHERE run = :run
ORDER BY entered, stage
