-- Where the line of an owner ends, by queue: at the highest rank of what waits.
WITH RECURSIVE own_lanes (lane) AS (
    SELECT min(lane) FROM perdure_jobs INDEXED BY perdure_jobs_fair_waiting
    WHERE fair = 1 AND ready IS NOT NULL AND owner = :owner
    UNION ALL
    SELECT (
        SELECT min(j.lane) FROM perdure_jobs AS j INDEXED BY perdure_jobs_fair_waiting
        WHERE j.fair = 1 AND j.ready IS NOT NULL AND j.owner = :owner AND j.lane > own_lanes.lane
    )
    FROM own_lanes WHERE own_lanes.lane IS NOT NULL
)
SELECT l.queue, max((
    SELECT max(j.rank_at) FROM perdure_jobs AS j INDEXED BY perdure_jobs_fair_waiting
    WHERE j.fair = 1 AND j.ready IS NOT NULL AND j.owner = :owner AND j.lane = o.lane
))
FROM own_lanes AS o CROSS JOIN perdure_lanes AS l ON l.no = o.lane
GROUP BY l.queue
