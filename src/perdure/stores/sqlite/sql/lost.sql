-- From the few dead workers to what they hold, never over all jobs.
SELECT j.no, j.worker, j.on_lost, w.death
FROM perdure_workers AS w CROSS JOIN perdure_jobs AS j ON j.worker = w.no
WHERE w.dead_at IS NOT NULL AND w.settled_at IS NULL
AND (:lanes IS NULL OR j.lane IN (SELECT value FROM json_each(:lanes)))
ORDER BY w.no, j.no LIMIT :limit
