-- `promote.sql` for lanes that only the gate closes which is about to be probed.
WITH waiting AS MATERIALIZED (
    SELECT l.lane
    FROM unnest(%(lanes)s::bigint[]) AS l (lane)
    CROSS JOIN LATERAL (
        SELECT 1 FROM perdure_jobs AS j
        WHERE j.lane = l.lane AND j.isolation = %(isolation)s AND j.ready = 0
        AND j.due_at <= %(now)s::bigint
        ORDER BY j.due_at LIMIT 1
    ) AS h
),
parts AS MATERIALIZED (
    SELECT w.lane, greatest(1, %(limit)s / count(*) OVER ()) AS jobs FROM waiting AS w
),
due AS MATERIALIZED (
    SELECT h.no, l.lane, h.error_kind
    FROM parts AS l
    CROSS JOIN LATERAL (
        SELECT j.no, j.error_kind FROM perdure_jobs AS j
        WHERE j.lane = l.lane AND j.isolation = %(isolation)s AND j.ready = 0
        AND j.due_at <= %(now)s::bigint
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
)
UPDATE perdure_jobs SET ready = 1 WHERE no = ANY (ARRAY(SELECT no FROM due))
