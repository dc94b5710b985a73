SELECT {item_columns} FROM perdure_jobs
WHERE redrive_run = :run AND finished_at IS NOT NULL AND (finished_at, no) > (:since, :after)
ORDER BY finished_at, no LIMIT :limit
