-- Whether an open lane has a job that can run now, when the soonest of the others falls due, the store's
-- time, and whether the worker that asks is alive.
WITH open_lanes AS MATERIALIZED (
    SELECT l.lane FROM unnest(%(lanes)s::bigint[]) AS l (lane)
    WHERE l.lane NOT IN (SELECT c.lane FROM perdure_closed_lanes AS c)
)
SELECT
    EXISTS (
        SELECT 1 FROM open_lanes AS l
        CROSS JOIN LATERAL (
            SELECT 1 FROM perdure_jobs AS j
            WHERE j.lane = l.lane AND j.isolation = %(isolation)s AND j.ready = 1
            ORDER BY j.rank_at, j.no LIMIT 1
        ) AS h
    ),
    (
        SELECT min(h.due_at)
        FROM open_lanes AS l
        CROSS JOIN LATERAL (
            SELECT j.due_at FROM perdure_jobs AS j
            WHERE j.lane = l.lane AND j.isolation = %(isolation)s AND j.ready = 0
            ORDER BY j.due_at LIMIT 1
        ) AS h
    ),
    {now},
    EXISTS (SELECT 1 FROM perdure_workers WHERE no = %(worker)s AND dead_at IS NULL)
