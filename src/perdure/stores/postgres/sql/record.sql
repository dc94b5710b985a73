-- Settle a batch of attempts: one JSON array of records in, sorted by number; one JSON value out.
-- The guard is (no, token) alone (with the state in it the planner takes to the index of held jobs and walks
-- its dead entries); the token moves on, so that no later writer of this claim can match again. The writing
-- worker must be alive: its row is locked against being declared dead until we have committed. On a connection
-- that is lent to us, whose transaction may last, it is only looked at, and counts go to rows of that connection.
-- What a record leaves out is null, zero, or as the job has it. A re-claim in a closed lane is queued instead.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
locked AS MATERIALIZED (
    SELECT no FROM perdure_workers WHERE no = %(by)s::bigint AND dead_at IS NULL AND NOT %(lent)s::boolean
    FOR KEY SHARE
),
writer AS MATERIALIZED (
    SELECT no FROM locked
    UNION ALL
    SELECT no FROM perdure_workers WHERE no = %(by)s::bigint AND dead_at IS NULL AND %(lent)s::boolean
),
counter AS MATERIALIZED (
    SELECT CASE WHEN %(lent)s::boolean THEN -(pg_current_xact_id()::text::bigint + 4294967296)
        ELSE -pg_backend_pid() END AS no
),
-- Where those stand that are no claims; a promotion raises no token. They are locked before the others, which are.
waited AS MATERIALIZED (
    SELECT
        j.no, CASE WHEN j.state <> 'queued' THEN j.state WHEN j.ready = 1 THEN 'ready'
            WHEN j.error_kind IS NULL THEN 'waiting' ELSE 'retrying' END AS place
    FROM unnest(%(waiting)s::bigint[], %(waiting_tokens)s::bigint[]) AS w (no, token)
    CROSS JOIN LATERAL (
        SELECT o.no, o.state, o.ready, o.error_kind FROM perdure_jobs AS o
        WHERE o.no = w.no AND o.token = w.token LIMIT 1
        FOR UPDATE
    ) AS j
),
done AS (
    UPDATE perdure_jobs AS j SET
        state = CASE WHEN r.again AND NOT r.reclaim THEN 'queued' ELSE r.state END,
        ready = CASE WHEN r.state = 'queued' OR (r.again AND NOT r.reclaim)
            THEN (r.delay_us = 0)::int END,
        worker = CASE WHEN r.reclaim THEN %(by)s::bigint END,
        token = j.token + CASE WHEN r.reclaim THEN 2 ELSE 1 END,
        lane = r.lane, stage = coalesce(r.stage, j.stage), isolation = coalesce(r.isolation, 0),
        starts = coalesce(r.starts, j.starts) + CASE WHEN r.reclaim THEN 1 ELSE 0 END,
        {r.counters_recorded}, past = r.past,
        input_from = coalesce(r.checkpoint_stage, j.input_from),
        due_at = coalesce(clock.now + r.delay_us, j.due_at),
        claimed_at = CASE WHEN r.reclaim THEN clock.now ELSE j.claimed_at END,
        finished_at = CASE WHEN r.state IN ('succeeded', 'failed', 'cancelled') THEN clock.now END,
        updated_at = clock.now,
        failed_reason = r.failed_reason, error_kind = r.error_kind, error_message = r.error_message,
        error_code = r.error_code, error_detail = r.error_detail, fingerprint = r.fingerprint,
        label = r.label, result = r.result, hard_at = CASE WHEN r.reclaim THEN j.hard_at END,
        on_lost = CASE WHEN r.reclaim THEN j.on_lost END
    FROM clock, (SELECT count(*) FROM waited) AS seen, (
        SELECT s.*, s.again AND NOT s.lane = ANY (
            ARRAY(SELECT c.lane FROM perdure_closed_lanes AS c)
        ) AS reclaim
        FROM jsonb_to_recordset(%(records)s::jsonb) AS s (
            no bigint, token bigint, state text, lane bigint, lane_from bigint, stage text, isolation smallint,
            {counters_typed}, past text, delay_us bigint,
            delay_s double precision, failed_reason text, error_kind text, error_message text,
            label text, result text, checkpoint_stage text, checkpoint text, again boolean,
            done_stage text, number integer, status text, worker bigint, claimed_at bigint,
            elapsed_s double precision, counted text, kind text, message text, policy text, why text,
            evidence text, config_hash text, error_code text, error_detail text, fingerprint text,
            code text, tokens_in bigint, tokens_out bigint, cost_nusd bigint, called boolean,
            captures jsonb
        )
        OFFSET 0  -- keeps the subquery whole: else the closed lanes are looked up at every use of `reclaim`
    ) AS r
    WHERE j.no = r.no AND j.token = r.token
    AND (%(by)s::bigint IS NULL OR EXISTS (SELECT 1 FROM writer))
    RETURNING
        j.no, j.id, r.token, j.token AS token_now, j.state, j.ready, j.lane, coalesce(r.lane_from, j.lane) AS lane_from,
        j.owner, j.pipeline, j.fingerprint, j.error_code, j.failed_reason, j.due_at, j.run, j.redrive_run, j.life, clock.now,
        coalesce(r.done_stage, j.stage) AS stage, coalesce(r.number, j.starts) AS number, r.status,
        coalesce(r.worker, %(by)s::bigint) AS worker,
        coalesce(r.claimed_at, j.claimed_at) AS claimed_at, r.elapsed_s, r.delay_s, r.delay_us,
        r.counted, r.kind, r.message, r.policy, r.why, r.evidence, r.config_hash,
        r.checkpoint_stage, r.checkpoint, r.error_kind, r.code, r.tokens_in, r.tokens_out, r.cost_nusd,
        r.called, r.captures,
        CASE WHEN r.reclaim THEN json_build_array(
            {j.claim_columns},
            CASE WHEN r.checkpoint_stage IS NOT NULL THEN r.checkpoint ELSE {j.claim_input} END
        ) END AS claim
),
attempts AS (
    INSERT INTO perdure_attempts (
        job, token, stage, number, life, status, state, worker, claimed_at, settled_at, elapsed_s,
        delay_s, due_at, counted, kind, message, policy, why, evidence, config_hash, settled_by,
        code, tokens_in, tokens_out, cost_nusd, owner
    )
    SELECT
        d.no, d.token, d.stage, d.number, d.life, d.status, d.state, d.worker, d.claimed_at, d.now,
        d.elapsed_s, d.delay_s, d.now + d.delay_us, d.counted, d.kind, coalesce(d.message, ''),
        d.policy, d.why, d.evidence, d.config_hash, %(by)s::bigint,
        d.code, coalesce(d.tokens_in, 0), coalesce(d.tokens_out, 0), coalesce(d.cost_nusd, 0),
        nullif(d.owner, '')
    FROM done AS d
    WHERE d.status IS NOT NULL
),
-- What else an owner must find. An UPDATE would be a join, and its plan could come to walk the table.
owned AS (
    INSERT INTO perdure_owned (owner, job, failed, changed_at)
    SELECT d.owner, d.no, d.state = 'failed', d.now FROM done AS d
    WHERE d.owner <> '' AND (d.state = 'failed' OR d.status IS NULL)
    ON CONFLICT (owner, job) DO UPDATE SET failed = excluded.failed, changed_at = excluded.changed_at
),
checkpoints AS (
    INSERT INTO perdure_checkpoints (job, stage, token, saved_at, value)
    SELECT d.no, d.checkpoint_stage, d.token, d.now, d.checkpoint
    FROM done AS d
    WHERE d.checkpoint_stage IS NOT NULL
),
captures AS (
    INSERT INTO perdure_artifacts (
        id, job, token, stage, kind, media_type, content, bytes_whole, saved_at, expires_at
    )
    SELECT
        c.id, d.no, d.token, d.stage, c.kind, c.media_type, decode(c.content, 'base64'),
        c.bytes_whole, d.now, d.now + c.kept_us
    FROM done AS d
    CROSS JOIN LATERAL jsonb_to_recordset(d.captures) AS c (
        id uuid, kind text, media_type text, content text, bytes_whole bigint, kept_us bigint
    )
    WHERE d.captures IS NOT NULL
),
moves AS MATERIALIZED (
    SELECT d.lane_from AS lane, coalesce(w.place, 'processing') AS place, -1 AS jobs
    FROM done AS d LEFT JOIN waited AS w ON w.no = d.no
    UNION ALL
    SELECT
        d.lane, CASE WHEN d.state <> 'queued' THEN d.state WHEN d.ready = 1 THEN 'ready'
            WHEN d.error_kind IS NULL THEN 'waiting' ELSE 'retrying' END, 1
    FROM done AS d
),
depths AS (
    INSERT INTO perdure_depths AS t (
        lane, writer, ready, waiting, retrying, processing, succeeded, failed, cancelled
    )
    SELECT
        lane, (SELECT no FROM counter), coalesce(sum(jobs) FILTER (WHERE place = 'ready'), 0),
        coalesce(sum(jobs) FILTER (WHERE place = 'waiting'), 0),
        coalesce(sum(jobs) FILTER (WHERE place = 'retrying'), 0),
        coalesce(sum(jobs) FILTER (WHERE place = 'processing'), 0),
        coalesce(sum(jobs) FILTER (WHERE place = 'succeeded'), 0),
        coalesce(sum(jobs) FILTER (WHERE place = 'failed'), 0),
        coalesce(sum(jobs) FILTER (WHERE place = 'cancelled'), 0)
    FROM moves GROUP BY lane
    ON CONFLICT (lane, writer) DO UPDATE SET
        ready = t.ready + excluded.ready, waiting = t.waiting + excluded.waiting,
        retrying = t.retrying + excluded.retrying, processing = t.processing + excluded.processing,
        succeeded = t.succeeded + excluded.succeeded, failed = t.failed + excluded.failed,
        cancelled = t.cancelled + excluded.cancelled
),
flows AS (
    INSERT INTO perdure_flows AS t (
        pipeline, stage, minute, writer, succeeded, failed, cancelled, attempts, retries, waits, tokens_in,
        tokens_out, cost_nusd
    )
    SELECT
        d.pipeline, d.stage, d.now / 60000000, (SELECT no FROM counter),
        count(*) FILTER (WHERE d.state = 'succeeded'), count(*) FILTER (WHERE d.state = 'failed'),
        count(*) FILTER (WHERE d.state = 'cancelled'), count(d.status),
        count(*) FILTER (WHERE d.counted = 'failures' AND d.state IN ('queued', 'processing')),
        count(*) FILTER (WHERE d.counted = 'waits' AND d.state IN ('queued', 'processing')),
        coalesce(sum(d.tokens_in), 0), coalesce(sum(d.tokens_out), 0), coalesce(sum(d.cost_nusd), 0)
    FROM done AS d
    GROUP BY d.pipeline, d.stage, d.now
    ON CONFLICT (pipeline, stage, minute, writer) DO UPDATE SET
        succeeded = t.succeeded + excluded.succeeded, failed = t.failed + excluded.failed,
        cancelled = t.cancelled + excluded.cancelled, attempts = t.attempts + excluded.attempts,
        retries = t.retries + excluded.retries, waits = t.waits + excluded.waits,
        tokens_in = t.tokens_in + excluded.tokens_in, tokens_out = t.tokens_out + excluded.tokens_out,
        cost_nusd = t.cost_nusd + excluded.cost_nusd
),
deaths AS (
    INSERT INTO perdure_deaths AS t (
        owner, fingerprint, pipeline, stage, reason, kind, code, writer, letters, ever, first_at, last_at
    )
    SELECT
        w.owner, coalesce(d.fingerprint, ''), d.pipeline, d.stage, d.failed_reason, coalesce(d.error_kind, ''),
        coalesce(d.error_code, ''), (SELECT no FROM counter), count(*), count(*), d.now, d.now
    FROM done AS d CROSS JOIN LATERAL (SELECT '' UNION SELECT d.owner) AS w (owner)
    WHERE d.state = 'failed'
    GROUP BY 1, 2, 3, 4, 5, 6, 7, d.now
    ON CONFLICT (owner, fingerprint, pipeline, stage, reason, kind, code, writer) DO UPDATE SET
        letters = t.letters + excluded.letters, ever = t.ever + excluded.ever,
        first_at = least(t.first_at, excluded.first_at), last_at = greatest(t.last_at, excluded.last_at)
),
owners AS (
    INSERT INTO perdure_owners AS t (owner, writer, open)
    SELECT owner, (SELECT no FROM counter), -count(*) FROM done
    WHERE owner <> '' AND state IN ('succeeded', 'failed', 'cancelled') GROUP BY owner
    ON CONFLICT (owner, writer) DO UPDATE SET open = t.open + excluded.open
),
counted AS (
    INSERT INTO perdure_run_counts AS c (
        run, writer, succeeded, failed, cancelled, attempts, retries, tokens_in, tokens_out, cost_nusd, calls
    )
    SELECT
        o.run, coalesce(%(counter)s::bigint, (SELECT no FROM counter)),
        count(*) FILTER (WHERE d.state = 'succeeded'), count(*) FILTER (WHERE d.state = 'failed'),
        count(*) FILTER (WHERE d.state = 'cancelled'), count(d.status),
        count(*) FILTER (WHERE d.counted = 'failures' AND d.state IN ('queued', 'processing')),
        coalesce(sum(d.tokens_in), 0), coalesce(sum(d.tokens_out), 0), coalesce(sum(d.cost_nusd), 0),
        count(*) FILTER (WHERE d.called)
    FROM done AS d
    CROSS JOIN LATERAL (VALUES (d.run), (d.redrive_run)) AS o (run)
    WHERE (d.run IS NOT NULL OR d.redrive_run IS NOT NULL) AND o.run IS NOT NULL
    GROUP BY o.run ORDER BY o.run
    ON CONFLICT (run, writer) DO UPDATE SET
        succeeded = c.succeeded + excluded.succeeded, failed = c.failed + excluded.failed,
        cancelled = c.cancelled + excluded.cancelled, attempts = c.attempts + excluded.attempts,
        retries = c.retries + excluded.retries, tokens_in = c.tokens_in + excluded.tokens_in,
        tokens_out = c.tokens_out + excluded.tokens_out, cost_nusd = c.cost_nusd + excluded.cost_nusd,
        calls = c.calls + excluded.calls
),
kinds AS (
    INSERT INTO perdure_run_kinds AS k (run, writer, kind, failed)
    SELECT o.run, coalesce(%(counter)s::bigint, (SELECT no FROM counter)), coalesce(d.error_kind, ''), count(*)
    FROM done AS d
    CROSS JOIN LATERAL (VALUES (d.run), (d.redrive_run)) AS o (run)
    WHERE d.state = 'failed' AND (d.run IS NOT NULL OR d.redrive_run IS NOT NULL)
    AND o.run IS NOT NULL
    GROUP BY o.run, coalesce(d.error_kind, '') ORDER BY o.run, coalesce(d.error_kind, '')
    ON CONFLICT (run, writer, kind) DO UPDATE SET failed = k.failed + excluded.failed
),
lines AS (
    INSERT INTO perdure_changes (changed_at, what, size, entries)
    SELECT clock.now, 'attempt_ended', t.size, t.entries
    FROM clock, (
        SELECT count(*) AS size, json_build_array(
            json_agg(d.no), json_agg(d.id), json_agg(d.owner), json_agg(d.pipeline), json_agg(d.stage),
            json_agg(d.state), json_agg(d.status), json_agg(d.token_now), json_agg(d.run)
        ) AS entries FROM done AS d
    ) AS t
    WHERE t.size > 0
)
SELECT json_build_object(
    'alive', %(by)s::bigint IS NULL OR EXISTS (SELECT 1 FROM writer),
    'done', (
        SELECT json_agg(json_build_array(
            d.no, d.token, d.state, CASE WHEN d.delay_us IS NULL THEN NULL ELSE d.due_at END, d.claim
        )) FROM done AS d
    )
)
