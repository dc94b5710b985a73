-- Where the line of each queue starts: at the lowest rank of what can run now in its open lanes. Lanes are found by
-- stepping from one that has fair jobs to the next, one look into the index each;
-- with statistics from before the first fair job SQLite would walk all that is ready.
WITH RECURSIVE ready_lanes (lane) AS (
    SELECT min(lane) FROM perdure_jobs INDEXED BY perdure_jobs_fair_ready
    WHERE fair = 1 AND ready = 1
    UNION ALL
    SELECT (
        SELECT min(j.lane) FROM perdure_jobs AS j INDEXED BY perdure_jobs_fair_ready
        WHERE j.fair = 1 AND j.ready = 1 AND j.lane > ready_lanes.lane
    )
    FROM ready_lanes WHERE ready_lanes.lane IS NOT NULL
)
SELECT l.queue, min((
    SELECT min(j.rank_at) FROM perdure_jobs AS j INDEXED BY perdure_jobs_fair_ready
    WHERE j.fair = 1 AND j.ready = 1 AND j.lane = r.lane
))
FROM ready_lanes AS r CROSS JOIN perdure_lanes AS l ON l.no = r.lane
WHERE r.lane NOT IN (SELECT c.lane FROM perdure_closed_lanes AS c)
GROUP BY l.queue
