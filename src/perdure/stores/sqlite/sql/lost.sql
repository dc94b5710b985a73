SELECT j.no, j.worker, w.death
FROM perdure_workers AS w JOIN perdure_jobs AS j ON j.worker = w.no
WHERE w.dead_at IS NOT NULL AND w.settled_at IS NULL
ORDER BY j.no LIMIT ?
