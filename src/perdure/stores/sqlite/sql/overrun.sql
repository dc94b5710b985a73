-- From the living workers to what they hold, never over all jobs; what a dead one holds is lost, which is
-- another thing. Limits are a JSON object of microseconds by lane.
SELECT j.no, j.worker, j.on_lost
FROM perdure_workers AS w CROSS JOIN perdure_jobs AS j ON j.worker = w.no
CROSS JOIN json_each(:limits) AS l ON l.key = j.lane
WHERE w.dead_at IS NULL AND coalesce(j.hard_at, j.claimed_at + l.value) < :now
ORDER BY j.no LIMIT :limit
