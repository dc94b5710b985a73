UPDATE perdure_workers SET settled_at = :now
WHERE dead_at IS NOT NULL AND settled_at IS NULL
AND NOT EXISTS (SELECT 1 FROM perdure_jobs AS j WHERE j.worker = perdure_workers.no)
