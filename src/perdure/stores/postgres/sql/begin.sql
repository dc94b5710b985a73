-- A job that its caller runs at once, or that is queued where its lane is closed. The caller's row is locked
-- against being declared dead meanwhile.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
caller AS MATERIALIZED (
    SELECT no FROM perdure_workers WHERE no = %(worker)s AND dead_at IS NULL FOR KEY SHARE
),
lane AS MATERIALIZED (
    SELECT NOT EXISTS (SELECT 1 FROM perdure_closed_lanes AS c WHERE c.lane = %(lane)s) AS is_open
),
made AS (
    INSERT INTO perdure_jobs (
        id, owner, pipeline, run, key, lane, stage, state, ready, worker, token, starts, priority,
        order_at, rank_at, enqueued_at, due_at, claimed_at, deadline_at, hard_at, on_lost, updated_at,
        payload, tokens, fair, request_id, deadline_us, policies_us
    )
    SELECT
        %(id)s::uuid, %(owner)s, %(pipeline)s, %(run)s::bigint, %(key)s::text, %(lane)s, %(stage)s,
        CASE WHEN is_open THEN 'processing' ELSE 'queued' END, CASE WHEN NOT is_open THEN 1 END,
        CASE WHEN is_open THEN caller.no END, is_open::int, is_open::int, %(priority)s,
        least(%(ordered_at)s::bigint, clock.now),
        coalesce(%(rank_at)s::bigint, least(%(ordered_at)s::bigint, clock.now) - %(priority)s * %(ageing_us)s::bigint),
        clock.now, clock.now,
        CASE WHEN is_open THEN clock.now END,
        clock.now + coalesce(%(deadline_us)s::bigint, %(policies_us)s::bigint),
        CASE WHEN is_open THEN clock.now + %(hard_us)s::bigint END,
        CASE WHEN is_open THEN %(on_lost)s::text END, clock.now, %(payload)s,
        %(tokens)s::bigint, %(rank_at)s::bigint IS NOT NULL,
        %(request_id)s::text, %(deadline_us)s::bigint, %(policies_us)s::bigint
    FROM clock, caller, lane
    ON CONFLICT DO NOTHING
    RETURNING no, id, owner, pipeline, stage, state, token, run, lane, ready
),
owned AS (
    INSERT INTO perdure_owned (owner, job, changed_at)
    SELECT m.owner, m.no, clock.now FROM clock, made AS m WHERE m.owner <> ''
),
depths AS (
    INSERT INTO perdure_depths AS t (lane, writer, ready, processing)
    SELECT lane, -pg_backend_pid(), coalesce(ready, 0), 1 - coalesce(ready, 0) FROM made
    ON CONFLICT (lane, writer) DO UPDATE SET
        ready = t.ready + excluded.ready, processing = t.processing + excluded.processing
),
flows AS (
    INSERT INTO perdure_flows AS t (pipeline, stage, minute, writer, created)
    SELECT m.pipeline, m.stage, clock.now / 60000000, -pg_backend_pid(), 1 FROM made AS m, clock
    ON CONFLICT (pipeline, stage, minute, writer) DO UPDATE SET created = t.created + excluded.created
),
owners AS (
    INSERT INTO perdure_owners AS t (owner, writer, open)
    SELECT owner, -pg_backend_pid(), 1 FROM made WHERE owner <> ''
    ON CONFLICT (owner, writer) DO UPDATE SET open = t.open + excluded.open
),
counted AS (
    INSERT INTO perdure_run_counts AS c (run, writer, total)
    SELECT run, -pg_backend_pid(), 1 FROM made WHERE run IS NOT NULL
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
lines AS (
    INSERT INTO perdure_changes (changed_at, what, size, entries)
    SELECT clock.now, 'job_accepted', 1,
        json_build_array(ARRAY[no], id, owner, pipeline, stage, state, NULL, token, run)
    FROM clock, made
    UNION ALL
    SELECT clock.now, 'run_changed', 1,
        json_build_array(ARRAY[u.no], u.id, u.owner, u.pipeline, '', u.status, NULL, 0, u.no)
    FROM clock, taken_in AS u WHERE u.changed_at = clock.now
)
SELECT (SELECT no FROM made), EXISTS (SELECT 1 FROM caller)
