-- When the job at the head of each line fell due, and the first of those that wait for their time. Of lanes in which jobs
-- are queued, by isolation: one step into an index for each, however many jobs wait.
SELECT l.lane,
    (
        SELECT j.due_at FROM perdure_jobs AS j
        WHERE j.lane = l.lane AND j.isolation = i.isolation AND j.ready = 1
        ORDER BY j.rank_at, j.no LIMIT 1
    ),
    (
        SELECT min(j.due_at) FROM perdure_jobs AS j
        WHERE j.lane = l.lane AND j.isolation = i.isolation AND j.ready = 0
    )
FROM (
    SELECT lane FROM perdure_depths GROUP BY lane HAVING sum(ready) > 0 OR sum(waiting) + sum(retrying) > 0
) AS l
CROSS JOIN (SELECT 0 AS isolation UNION ALL SELECT 1 UNION ALL SELECT 2) AS i
