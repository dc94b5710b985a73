-- The living, then the dead whose jobs are not yet settled, then the newest of the others.
SELECT {worker_columns}
FROM perdure_workers
WHERE settled_at IS NULL OR no IN (
    SELECT no FROM perdure_workers WHERE settled_at IS NOT NULL ORDER BY no DESC LIMIT :limit
)
ORDER BY dead_at IS NOT NULL, settled_at IS NOT NULL, no DESC
