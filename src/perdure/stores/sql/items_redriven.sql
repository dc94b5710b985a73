SELECT {item_columns} FROM perdure_jobs
WHERE redrive_run = :run AND no > :after
ORDER BY no LIMIT :limit
