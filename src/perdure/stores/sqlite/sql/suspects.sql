SELECT DISTINCT isolation FROM perdure_jobs
WHERE isolation > 0 AND ready IS NOT NULL AND due_at <= :now
