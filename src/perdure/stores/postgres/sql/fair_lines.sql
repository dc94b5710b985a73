-- What the ranks of fair jobs are made of: the moment; the queues of these lanes; where the line of each queue
-- starts, and where the lines of these owners end. Lanes are found by stepping from one that has fair jobs to the
-- next, one look into the index each.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT {now} AS now
),
ready_lanes (lane) AS (
    (SELECT j.lane FROM perdure_jobs AS j WHERE j.fair AND j.ready = 1 AND j.lane > 0 ORDER BY j.lane LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.lane FROM perdure_jobs AS j WHERE j.fair AND j.ready = 1 AND j.lane > r.lane
        ORDER BY j.lane LIMIT 1
    )
    FROM ready_lanes AS r WHERE r.lane IS NOT NULL
),
owners AS MATERIALIZED (
    SELECT o.owner FROM jsonb_array_elements_text(%(owners)s::jsonb) AS o (owner)
),
owner_lanes (owner, lane) AS (
    SELECT o.owner, (
        SELECT j.lane FROM perdure_jobs AS j WHERE j.fair AND j.ready IS NOT NULL AND j.owner = o.owner
        ORDER BY j.lane LIMIT 1
    )
    FROM owners AS o
    UNION ALL
    SELECT w.owner, (
        SELECT j.lane FROM perdure_jobs AS j
        WHERE j.fair AND j.ready IS NOT NULL AND j.owner = w.owner AND j.lane > w.lane
        ORDER BY j.lane LIMIT 1
    )
    FROM owner_lanes AS w WHERE w.lane IS NOT NULL
)
SELECT 'now', NULL, NULL, now FROM clock
UNION ALL
SELECT 'lane', NULL, l.queue, l.no FROM perdure_lanes AS l WHERE l.no = ANY (%(lanes)s::bigint[])
UNION ALL
SELECT 'start', NULL, l.queue, min(h.rank_at)
FROM ready_lanes AS r
CROSS JOIN LATERAL (SELECT o.queue FROM perdure_lanes AS o WHERE o.no = r.lane LIMIT 1) AS l
CROSS JOIN LATERAL (
    SELECT j.rank_at FROM perdure_jobs AS j WHERE j.fair AND j.ready = 1 AND j.lane = r.lane
    ORDER BY j.rank_at LIMIT 1
) AS h
WHERE r.lane NOT IN (SELECT c.lane FROM perdure_closed_lanes AS c)
GROUP BY l.queue
UNION ALL
SELECT 'end', w.owner, l.queue, max(h.rank_at)
FROM owner_lanes AS w
CROSS JOIN LATERAL (SELECT o.queue FROM perdure_lanes AS o WHERE o.no = w.lane LIMIT 1) AS l
CROSS JOIN LATERAL (
    SELECT j.rank_at FROM perdure_jobs AS j
    WHERE j.fair AND j.ready IS NOT NULL AND j.owner = w.owner AND j.lane = w.lane
    ORDER BY j.rank_at DESC LIMIT 1
) AS h
GROUP BY w.owner, l.queue
