-- One JSON array of jobs in, numbered in its order; the ids and numbers of the new ones out. A job whose
-- id or key is taken is left alone: the winner of a race commits first, and we wait for it.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
),
made AS (
    INSERT INTO perdure_jobs (
        id, owner, pipeline, run, key, lane, stage, state, ready, priority,
        order_at, rank_at, enqueued_at, due_at, deadline_at, updated_at, payload, tokens, fair,
        request_id, deadline_us, policies_us
    )
    SELECT
        r.id, r.owner, r.pipeline, r.run, r.key, r.lane, r.stage, 'queued',
        (coalesce(r.run_at, 0) <= clock.now)::int, r.priority,
        o.order_at, coalesce(r.rank_at, o.order_at - r.priority * %(ageing_us)s::bigint),
        clock.now, greatest(r.run_at, clock.now),
        greatest(r.run_at, clock.now) + coalesce(r.deadline_us, r.policies_us), clock.now, r.payload,
        r.tokens, r.rank_at IS NOT NULL, r.request_id, r.deadline_us, r.policies_us
    FROM clock, jsonb_to_recordset(%(jobs)s::jsonb) AS r (
        id uuid, owner text, pipeline text, run bigint, key text, lane bigint, stage text,
        priority integer, run_at bigint, deadline_us bigint, payload text, tokens bigint, rank_at bigint,
        request_id text, ordered_at bigint, policies_us bigint
    ),
    LATERAL (
        SELECT CASE WHEN r.ordered_at IS NULL THEN greatest(r.run_at, clock.now)
            ELSE least(r.ordered_at, clock.now) END AS order_at
    ) AS o
    ON CONFLICT DO NOTHING
    RETURNING no, id, pipeline, run
),
booked AS (
    INSERT INTO perdure_books (pipeline, accepted) SELECT pipeline, count(*) FROM made GROUP BY pipeline
),
counted AS (
    INSERT INTO perdure_run_counts AS c (run, writer, total)
    SELECT run, -pg_backend_pid(), count(*) FROM made WHERE run IS NOT NULL GROUP BY run
    ON CONFLICT (run, writer) DO UPDATE SET total = c.total + excluded.total
),
-- A run with a new item is not over. Who ends one holds its row: either it counts after us, or we find it ended.
taken_in AS (
    UPDATE perdure_runs AS u SET
        status = CASE WHEN u.status IN ('completed', 'partial_success', 'failed') THEN 'running' ELSE u.status END,
        why = CASE WHEN u.status IN ('completed', 'partial_success', 'failed') THEN '' ELSE u.why END,
        changed_at = CASE WHEN u.ended_at IS NULL THEN u.changed_at ELSE clock.now END,
        ended_at = NULL
    FROM clock
    WHERE u.no IN (SELECT run FROM made WHERE run IS NOT NULL)
)
SELECT json_agg(json_build_array(id, no)) FROM made
