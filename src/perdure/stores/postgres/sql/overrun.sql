-- From the living workers to what they hold, never over all jobs; what a dead one holds is lost, which is
-- another thing. Limits are in microseconds, by lane.
SELECT j.no, j.token, j.worker, j.on_lost
FROM perdure_workers AS w
JOIN perdure_jobs AS j ON j.worker = w.no
JOIN jsonb_to_recordset(%(limits)s::jsonb) AS l (lane bigint, most_us bigint) ON l.lane = j.lane
WHERE w.dead_at IS NULL AND coalesce(j.hard_at, j.claimed_at + l.most_us) < %(now)s::bigint
ORDER BY j.no LIMIT %(limit)s
