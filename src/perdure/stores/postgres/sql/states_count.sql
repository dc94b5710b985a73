SELECT state, count(*) FROM perdure_jobs
WHERE %(pipeline)s::text IS NULL OR pipeline = %(pipeline)s
GROUP BY state
