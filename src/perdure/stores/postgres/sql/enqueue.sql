-- One JSON array of jobs in, numbered in its order; the ids and numbers of the new ones out. A job whose
-- id or key is taken is left alone: the winner of a race commits first, and we wait for it.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
-- A borrowed transaction has rows of its own: it may stay open for long, and nobody waits for it.
writer AS MATERIALIZED (
    SELECT CASE WHEN %(borrowed)s::boolean THEN -(pg_current_xact_id()::text::bigint + 4294967296)
        ELSE -pg_backend_pid() END AS writer
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
    RETURNING no, id, owner, pipeline, stage, run, lane, ready
),
owned AS (
    INSERT INTO perdure_owned (owner, job, changed_at)
    SELECT m.owner, m.no, clock.now FROM clock, made AS m WHERE m.owner <> ''
),
depths AS (
    INSERT INTO perdure_depths AS t (lane, writer, ready, waiting)
    SELECT lane, w.writer, sum(ready), count(*) - sum(ready) FROM made, writer AS w GROUP BY lane, w.writer
    ON CONFLICT (lane, writer) DO UPDATE SET
        ready = t.ready + excluded.ready, waiting = t.waiting + excluded.waiting
),
flows AS (
    INSERT INTO perdure_flows AS t (pipeline, stage, minute, writer, created)
    SELECT m.pipeline, m.stage, clock.now / 60000000, w.writer, count(*) FROM made AS m, clock, writer AS w
    GROUP BY m.pipeline, m.stage, clock.now, w.writer
    ON CONFLICT (pipeline, stage, minute, writer) DO UPDATE SET created = t.created + excluded.created
),
owners AS (
    INSERT INTO perdure_owners AS t (owner, writer, open)
    SELECT m.owner, w.writer, count(*) FROM made AS m, writer AS w WHERE m.owner <> '' GROUP BY m.owner, w.writer
    ON CONFLICT (owner, writer) DO UPDATE SET open = t.open + excluded.open
),
counted AS (
    INSERT INTO perdure_run_counts AS c (run, writer, total)
    SELECT m.run, w.writer, count(*) FROM made AS m, writer AS w WHERE m.run IS NOT NULL GROUP BY m.run, w.writer
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
    RETURNING u.no, u.id, u.owner, u.pipeline, u.status, u.changed_at
),
told AS MATERIALIZED (
    SELECT count(*) AS size,
        json_build_array(
            json_agg(no), json_agg(id), json_agg(owner), json_agg(pipeline), json_agg(stage), 'queued', NULL, 0,
            json_agg(run)
        ) AS entries
    FROM made
),
-- Runs that were over and are not any more are told as well: they were changed at this very moment.
lines AS (
    INSERT INTO perdure_changes (changed_at, what, size, entries)
    SELECT clock.now, 'job_accepted', size, entries FROM clock, told WHERE size > 0
    UNION ALL
    SELECT clock.now, 'run_changed', 1,
        json_build_array(ARRAY[u.no], u.id, u.owner, u.pipeline, '', u.status, NULL, 0, u.no)
    FROM clock, taken_in AS u WHERE u.changed_at = clock.now
)
SELECT entries FROM told
