-- A new life for failed jobs, ordered as if they were new (fair ones have their rank). Until the deadline each has as long as its
-- caller said at first; if that was nothing, what its policies give. A payload may take the place of the old one, which is kept.
-- Guarded by (no, token); only a failed job has a failed_reason. Rows are locked in the order of numbers.
WITH counter AS MATERIALIZED (
    SELECT CASE WHEN %(borrowed)s::boolean THEN -(pg_current_xact_id()::text::bigint + 4294967296)
        ELSE -pg_backend_pid() END AS no
),
r AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(revivals)s::jsonb) AS r (
        no bigint, token bigint, stage text, lane bigint, input_from text, redrive_run bigint,
        rank_at bigint, policies_us bigint, payload text
    )
),
before AS MATERIALIZED (
    SELECT j.no, j.run, j.redrive_run AS redriven, coalesce(j.error_kind, '') AS kind, j.error_kind, j.error_code,
        j.failed_reason, j.fingerprint, j.owner, j.pipeline, j.discarded_at, j.lane AS old_lane, j.stage AS old_stage, j.life,
        r.stage, r.lane, r.input_from, r.redrive_run, r.rank_at, r.policies_us, r.payload,
        CASE WHEN r.payload IS NOT NULL THEN j.payload END AS payload_before
    FROM (SELECT * FROM r ORDER BY no) AS r
    CROSS JOIN LATERAL (
        SELECT
            o.no, o.run, o.redrive_run, o.error_kind, o.error_code, o.failed_reason, o.fingerprint, o.owner, o.pipeline,
            o.discarded_at, o.lane, o.stage, o.life, o.payload
        FROM perdure_jobs AS o
        WHERE o.no = r.no AND o.token = r.token AND o.state = 'failed' LIMIT 1
        FOR UPDATE
    ) AS j
),
revived AS (
    UPDATE perdure_jobs AS j SET
        state = 'queued', ready = 1, token = j.token + 1, life = j.life + 1,
        retries_manual = j.retries_manual + 1, lane = b.lane, stage = b.stage, isolation = 0,
        input_from = b.input_from, redrive_run = coalesce(b.redrive_run, j.redrive_run),
        order_at = %(now)s::bigint,
        rank_at = coalesce(b.rank_at, %(now)s::bigint - j.priority * %(ageing_us)s::bigint),
        due_at = %(now)s::bigint, updated_at = %(now)s::bigint,
        finished_at = NULL, discarded_at = NULL, failed_reason = NULL, error_kind = NULL,
        error_message = NULL, error_code = NULL, error_detail = NULL, fingerprint = NULL, past = NULL,
        hard_at = NULL,
        deadline_at = %(now)s::bigint + coalesce(j.deadline_us, b.policies_us),
        policies_us = CASE WHEN j.deadline_us IS NULL THEN b.policies_us END,
        starts = 0, {counters_cleared}, payload = coalesce(b.payload, j.payload)
    FROM before AS b
    WHERE j.no = b.no
    RETURNING j.no, j.redrive_run, j.life, j.id, j.owner, j.pipeline, j.stage, j.token, j.run
),
depths AS (
    INSERT INTO perdure_depths AS t (lane, writer, ready, failed)
    SELECT m.lane, (SELECT no FROM counter), sum(m.ready), sum(m.failed)
    FROM before AS b CROSS JOIN LATERAL (VALUES (b.old_lane, 0, -1), (b.lane, 1, 0)) AS m (lane, ready, failed)
    GROUP BY m.lane
    ON CONFLICT (lane, writer) DO UPDATE SET ready = t.ready + excluded.ready, failed = t.failed + excluded.failed
),
flows AS (
    INSERT INTO perdure_flows AS t (pipeline, stage, minute, writer, revived)
    SELECT pipeline, old_stage, %(now)s::bigint / 60000000, (SELECT no FROM counter), count(*) FROM before
    GROUP BY pipeline, old_stage
    ON CONFLICT (pipeline, stage, minute, writer) DO UPDATE SET revived = t.revived + excluded.revived
),
deaths AS (
    INSERT INTO perdure_deaths AS t (owner, fingerprint, pipeline, stage, reason, kind, code, writer, letters)
    SELECT
        w.owner, coalesce(fingerprint, ''), pipeline, old_stage, failed_reason, coalesce(error_kind, ''),
        coalesce(error_code, ''), (SELECT no FROM counter), -count(*)
    FROM before AS g CROSS JOIN LATERAL (SELECT '' UNION SELECT g.owner) AS w (owner)
    WHERE discarded_at IS NULL
    GROUP BY 1, 2, 3, 4, 5, 6, 7
    ON CONFLICT (owner, fingerprint, pipeline, stage, reason, kind, code, writer) DO UPDATE SET
        letters = t.letters + excluded.letters
),
owners AS (
    INSERT INTO perdure_owners AS t (owner, writer, open)
    SELECT owner, (SELECT no FROM counter), count(*) FROM before WHERE owner <> '' GROUP BY owner
    ON CONFLICT (owner, writer) DO UPDATE SET open = t.open + excluded.open
),
owned AS (
    INSERT INTO perdure_owned (owner, job, changed_at)
    SELECT owner, no, %(now)s::bigint FROM revived WHERE owner <> ''
    ON CONFLICT (owner, job) DO UPDATE SET failed = excluded.failed, changed_at = excluded.changed_at
),
kept AS (
    INSERT INTO perdure_payloads (job, life, payload)
    SELECT no, life, payload_before FROM before WHERE payload IS NOT NULL
),
redriven AS (
    INSERT INTO perdure_redrives (run, job, life)
    SELECT redrive_run, no, life FROM revived WHERE redrive_run IS NOT NULL
),
-- A run that drove it again before and does not now keeps it among its failed ones.
changes AS MATERIALIZED (
    SELECT run, kind, 0 AS total, -1 AS failed FROM before WHERE run IS NOT NULL
    UNION ALL
    SELECT redriven, kind, 0, -1 FROM before
    WHERE redriven IS NOT NULL AND (redrive_run IS NULL OR redrive_run = redriven)
    UNION ALL
    SELECT redrive_run, kind, 1, 0 FROM before
    WHERE redrive_run IS NOT NULL AND redrive_run IS DISTINCT FROM redriven
),
counted AS (
    INSERT INTO perdure_run_counts AS c (run, writer, total, failed)
    SELECT run, (SELECT no FROM counter), sum(total), sum(failed) FROM changes GROUP BY run ORDER BY run
    ON CONFLICT (run, writer) DO UPDATE SET
        total = c.total + excluded.total, failed = c.failed + excluded.failed
),
kinds AS (
    INSERT INTO perdure_run_kinds AS k (run, writer, kind, failed)
    SELECT run, (SELECT no FROM counter), kind, sum(failed) FROM changes WHERE failed <> 0
    GROUP BY run, kind ORDER BY run, kind
    ON CONFLICT (run, writer, kind) DO UPDATE SET failed = k.failed + excluded.failed
),
lines AS (
    INSERT INTO perdure_changes (changed_at, what, size, entries)
    SELECT %(now)s::bigint, 'job_revived', t.size, t.entries
    FROM (
        SELECT count(*) AS size, json_build_array(
            json_agg(no), json_agg(id), json_agg(owner), json_agg(pipeline), json_agg(stage), 'queued', NULL,
            json_agg(token), json_agg(run)
        ) AS entries FROM revived
    ) AS t
    WHERE t.size > 0
)
SELECT no FROM revived
