-- From the few runs that are not over to their lanes.
SELECT l.no, l.queue, l.category, l.pipeline, l.stage, l.run, l.upstream
FROM perdure_runs AS r CROSS JOIN perdure_lanes AS l ON l.run = r.no
WHERE r.ended_at IS NULL AND l.run IS NOT NULL
ORDER BY l.no
