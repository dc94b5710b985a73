SELECT DISTINCT isolation FROM perdure_jobs
WHERE isolation > 0 AND ready IS NOT NULL
AND due_at <= coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
