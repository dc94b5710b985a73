-- A job that its caller runs at once, or that is queued where its lane is closed. The caller's row is locked
-- against being declared dead meanwhile.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
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
    RETURNING no, pipeline, run
),
booked AS (
    INSERT INTO perdure_books (pipeline, accepted) SELECT pipeline, 1 FROM made
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
)
SELECT (SELECT no FROM made), EXISTS (SELECT 1 FROM caller)
