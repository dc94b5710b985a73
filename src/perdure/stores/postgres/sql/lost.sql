-- From the few dead workers to what they hold, never over all jobs.
SELECT j.no, j.token, j.worker, j.on_lost, w.death
FROM perdure_workers AS w
CROSS JOIN LATERAL (
    SELECT h.no, h.token, h.worker, h.on_lost FROM perdure_jobs AS h
    WHERE h.worker = w.no AND (%(lanes)s::bigint[] IS NULL OR h.lane = ANY (%(lanes)s::bigint[]))
    ORDER BY h.no + 0 LIMIT %(limit)s
) AS j
WHERE w.dead_at IS NOT NULL AND w.settled_at IS NULL
ORDER BY w.no, j.no LIMIT %(limit)s
