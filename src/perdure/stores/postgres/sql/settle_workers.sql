-- OFFSET 0 keeps the subquery whole: as a join it may walk all that is held once for each dead worker.
UPDATE perdure_workers AS w SET settled_at = %(now)s::bigint
WHERE w.dead_at IS NOT NULL AND w.settled_at IS NULL
AND NOT EXISTS (SELECT 1 FROM perdure_jobs AS j WHERE j.worker = w.no OFFSET 0)
