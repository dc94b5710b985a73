-- Retries and scheduled jobs whose time has come, of open lanes; their rank is kept. So many in a turn: each
-- lane that has some gets an equal part.
-- The lowest rank among them tells how far back the heads now reach.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
waiting AS MATERIALIZED (
    SELECT l.lane
    FROM unnest(%(lanes)s::bigint[]) AS l (lane)
    CROSS JOIN clock
    CROSS JOIN LATERAL (
        SELECT 1 FROM perdure_jobs AS j
        WHERE j.lane = l.lane AND j.isolation = %(isolation)s AND j.ready = 0 AND j.due_at <= clock.now
        ORDER BY j.due_at LIMIT 1
    ) AS h
    WHERE l.lane <> ALL (ARRAY(SELECT c.lane FROM perdure_closed_lanes AS c))
    AND EXISTS (
        SELECT 1 FROM perdure_workers AS w WHERE w.no = %(worker)s::bigint AND w.dead_at IS NULL
    )
),
parts AS MATERIALIZED (
    SELECT w.lane, greatest(1, %(limit)s / count(*) OVER ()) AS jobs FROM waiting AS w
),
due AS MATERIALIZED (
    SELECT h.no, l.lane, h.error_kind
    FROM parts AS l
    CROSS JOIN clock
    CROSS JOIN LATERAL (
        SELECT j.no, j.error_kind FROM perdure_jobs AS j
        WHERE j.lane = l.lane AND j.isolation = %(isolation)s AND j.ready = 0 AND j.due_at <= clock.now
        ORDER BY j.due_at LIMIT l.jobs
        FOR UPDATE SKIP LOCKED
    ) AS h
),
depths AS (
    INSERT INTO perdure_depths AS t (lane, writer, ready, waiting, retrying)
    SELECT lane, -pg_backend_pid(), count(*), count(error_kind) - count(*), -count(error_kind) FROM due GROUP BY lane
    ON CONFLICT (lane, writer) DO UPDATE SET
        ready = t.ready + excluded.ready, waiting = t.waiting + excluded.waiting,
        retrying = t.retrying + excluded.retrying
),
promoted AS (
    UPDATE perdure_jobs SET ready = 1 WHERE no = ANY (ARRAY(SELECT no FROM due)) RETURNING rank_at
)
SELECT min(rank_at) FROM promoted
