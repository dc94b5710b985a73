SELECT state, count(*) FROM perdure_jobs
WHERE :pipeline IS NULL OR pipeline = :pipeline
GROUP BY state
