SELECT {expired_columns} FROM perdure_jobs
WHERE deadline_at <= {now} AND ready IS NOT NULL
ORDER BY deadline_at LIMIT :limit
