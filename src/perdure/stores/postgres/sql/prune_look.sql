SELECT no, token, pipeline, state, enqueued_at, finished_at, discarded_at FROM perdure_jobs
WHERE no > %(after)s ORDER BY no LIMIT %(limit)s
