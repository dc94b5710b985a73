SELECT {item_columns} FROM perdure_jobs
WHERE run = :run AND no > :after
ORDER BY no LIMIT :limit
