-- Settle a batch of attempts: one JSON array of records in, sorted by number; one JSON value out.
-- The guard is (no, token) alone (with the state in it the planner takes to the index of held jobs and walks
-- its dead entries); the token moves on, so that no later writer of this claim can match again. The writing
-- worker must be alive: its row is locked against being declared dead until we have committed. What a
-- record leaves out is null, zero, or as the job has it. A re-claim in a closed lane is queued instead.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
),
writer AS MATERIALIZED (
    SELECT no FROM perdure_workers WHERE no = %(by)s::bigint AND dead_at IS NULL FOR KEY SHARE
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
        failures = coalesce(r.failures, 0), waits = coalesce(r.waits, 0),
        crashes = coalesce(r.crashes, 0), snoozes = coalesce(r.snoozes, 0),
        probes = coalesce(r.probes, 0), releases = coalesce(r.releases, 0),
        waited_s = coalesce(r.waited_s, 0), past = r.past,
        input_from = coalesce(r.checkpoint_stage, j.input_from),
        due_at = coalesce(clock.now + r.delay_us, j.due_at),
        claimed_at = CASE WHEN r.reclaim THEN clock.now ELSE j.claimed_at END,
        finished_at = CASE WHEN r.state IN ('succeeded', 'failed', 'cancelled') THEN clock.now END,
        updated_at = clock.now,
        failed_reason = r.failed_reason, error_kind = r.error_kind, error_message = r.error_message,
        error_code = r.error_code, error_detail = r.error_detail, fingerprint = r.fingerprint,
        label = r.label, result = r.result, hard_at = CASE WHEN r.reclaim THEN j.hard_at END,
        on_lost = CASE WHEN r.reclaim THEN j.on_lost END
    FROM clock, (
        SELECT s.*, s.again AND NOT s.lane = ANY (
            ARRAY(SELECT c.lane FROM perdure_closed_lanes AS c)
        ) AS reclaim
        FROM jsonb_to_recordset(%(records)s::jsonb) AS s (
            no bigint, token bigint, state text, lane bigint, stage text, isolation smallint,
            starts integer, failures integer, waits integer, crashes integer, snoozes integer,
            probes integer, releases integer, waited_s double precision, past text, delay_us bigint,
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
        j.no, r.token, j.state, j.due_at, j.run, j.redrive_run, j.life, clock.now,
        coalesce(r.done_stage, j.stage) AS stage, coalesce(r.number, j.starts) AS number, r.status,
        coalesce(r.worker, %(by)s::bigint) AS worker,
        coalesce(r.claimed_at, j.claimed_at) AS claimed_at, r.elapsed_s, r.delay_s, r.delay_us,
        r.counted, r.kind, r.message, r.policy, r.why, r.evidence, r.config_hash,
        r.checkpoint_stage, r.checkpoint, r.error_kind, r.code, r.tokens_in, r.tokens_out, r.cost_nusd,
        r.called, r.captures,
        CASE WHEN r.reclaim THEN json_build_array(
            j.no, j.id, j.token, j.lane, j.pipeline, j.stage, j.owner, j.payload,
            CASE WHEN r.checkpoint_stage IS NOT NULL THEN r.checkpoint
                WHEN j.input_from IS NOT NULL THEN coalesce((
                    SELECT c.value FROM perdure_checkpoints AS c
                    WHERE c.job = j.no AND c.stage = j.input_from
                ), '') END,
            j.starts, j.failures, j.waits, j.crashes, j.snoozes, j.probes, j.releases, j.waited_s,
            j.past, j.life, j.isolation, j.claimed_at, j.due_at, j.deadline_at, j.key, j.run,
            j.tokens, j.request_id
        ) END AS claim
),
attempts AS (
    INSERT INTO perdure_attempts (
        job, token, stage, number, life, status, state, worker, claimed_at, settled_at, elapsed_s,
        delay_s, due_at, counted, kind, message, policy, why, evidence, config_hash, settled_by,
        code, tokens_in, tokens_out, cost_nusd
    )
    SELECT
        d.no, d.token, d.stage, d.number, d.life, d.status, d.state, d.worker, d.claimed_at, d.now,
        d.elapsed_s, d.delay_s, d.now + d.delay_us, d.counted, d.kind, coalesce(d.message, ''),
        d.policy, d.why, d.evidence, d.config_hash, %(by)s::bigint,
        d.code, coalesce(d.tokens_in, 0), coalesce(d.tokens_out, 0), coalesce(d.cost_nusd, 0)
    FROM done AS d
    WHERE d.status IS NOT NULL
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
counted AS (
    INSERT INTO perdure_run_counts AS c (
        run, writer, succeeded, failed, cancelled, attempts, retries, tokens_in, tokens_out, cost_nusd, calls
    )
    SELECT
        o.run, coalesce(%(by)s::bigint, -pg_backend_pid()),
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
    SELECT o.run, coalesce(%(by)s::bigint, -pg_backend_pid()), coalesce(d.error_kind, ''), count(*)
    FROM done AS d
    CROSS JOIN LATERAL (VALUES (d.run), (d.redrive_run)) AS o (run)
    WHERE d.state = 'failed' AND (d.run IS NOT NULL OR d.redrive_run IS NOT NULL)
    AND o.run IS NOT NULL
    GROUP BY o.run, coalesce(d.error_kind, '') ORDER BY o.run, coalesce(d.error_kind, '')
    ON CONFLICT (run, writer, kind) DO UPDATE SET failed = k.failed + excluded.failed
)
SELECT json_build_object(
    'alive', %(by)s::bigint IS NULL OR EXISTS (SELECT 1 FROM writer),
    'done', (
        SELECT json_agg(json_build_array(
            d.no, d.token, d.state, CASE WHEN d.delay_us IS NULL THEN NULL ELSE d.due_at END, d.claim
        )) FROM done AS d
    )
)
