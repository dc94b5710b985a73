-- Jobs that wait for their time are due now. They stand in line from now on, if they were to do so later, and have as long
-- until their deadline; their places in fair lines are kept. Guarded by (no, token); only what waits for its time is not
-- ready. Rows are locked in the order of numbers.
WITH seen AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(targets)s::jsonb) AS s (no bigint, token bigint)
),
held AS MATERIALIZED (
    SELECT j.* FROM (SELECT * FROM seen ORDER BY no) AS s
    CROSS JOIN LATERAL (
        SELECT o.no, o.lane, o.owner, o.error_kind, greatest(o.order_at - %(now)s::bigint, 0) AS sooner
        FROM perdure_jobs AS o
        WHERE o.no = s.no AND o.token = s.token AND o.ready = 0
        AND (%(owner)s::text IS NULL OR o.owner = %(owner)s::text)
        LIMIT 1
        FOR UPDATE
    ) AS j
),
depths AS (
    INSERT INTO perdure_depths AS t (lane, writer, ready, waiting, retrying)
    SELECT lane, -pg_backend_pid(), count(*), count(error_kind) - count(*), -count(error_kind) FROM held GROUP BY lane
    ON CONFLICT (lane, writer) DO UPDATE SET
        ready = t.ready + excluded.ready, waiting = t.waiting + excluded.waiting,
        retrying = t.retrying + excluded.retrying
),
owned AS (
    INSERT INTO perdure_owned (owner, job, changed_at)
    SELECT owner, no, %(now)s::bigint FROM held WHERE owner <> ''
    ON CONFLICT (owner, job) DO UPDATE SET changed_at = excluded.changed_at
)
UPDATE perdure_jobs AS j SET
    ready = 1, token = j.token + 1, due_at = %(now)s::bigint, updated_at = %(now)s::bigint,
    order_at = j.order_at - held.sooner,
    rank_at = j.rank_at - CASE WHEN j.fair THEN 0 ELSE held.sooner END,
    deadline_at = least(j.deadline_at, %(now)s::bigint + coalesce(j.deadline_us, j.policies_us))
FROM held
WHERE j.no = held.no
RETURNING j.no, j.token - 1
