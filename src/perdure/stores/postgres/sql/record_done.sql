-- `record.sql` for a batch in which every job has succeeded with nothing counted, in its last stage: with fewer columns
-- to read and to write it takes two thirds of the time. The same guard, the same rows: what a hand-over left is cleared.
-- The batch comes by columns, and one that is null for all of them is not there. ``words`` has what many attempts share, said
-- once: policy, explanation and configuration, three texts from the place ``said`` on.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
),
writer AS MATERIALIZED (
    SELECT no FROM perdure_workers WHERE no = %(by)s::bigint AND dead_at IS NULL FOR KEY SHARE
),
shared AS MATERIALIZED (
    SELECT ARRAY(SELECT json_array_elements_text(%(words)s::json)) AS words
),
done AS (
    UPDATE perdure_jobs AS j SET
        state = 'succeeded', ready = NULL, worker = NULL, token = j.token + 1, lane = r.lane,
        isolation = 0, {counters_cleared}, past = NULL, finished_at = clock.now, updated_at = clock.now,
        failed_reason = NULL, error_kind = NULL, error_message = NULL, error_code = NULL,
        error_detail = NULL, fingerprint = NULL, label = r.label, result = r.result, hard_at = NULL,
        on_lost = NULL
    FROM clock, ROWS FROM (
        unnest(%(nos)s::bigint[], %(tokens)s::bigint[], %(lanes)s::bigint[], %(elapsed_s)s::double precision[]),
        unnest(%(said)s::integer[], %(called)s::boolean[]),
        json_array_elements_text(%(results)s::json), json_array_elements_text(%(labels)s::json)
    ) AS r (no, token, lane, elapsed_s, said, called, result, label)
    WHERE j.no = r.no AND j.token = r.token
    AND (%(by)s::bigint IS NULL OR EXISTS (SELECT 1 FROM writer))
    RETURNING
        j.no, j.id, r.token, j.lane, j.owner, j.pipeline, j.run, j.redrive_run, j.life, j.stage, j.starts,
        j.claimed_at, clock.now, r.elapsed_s, r.said, r.called
),
attempts AS (
    INSERT INTO perdure_attempts (
        job, token, stage, number, life, status, state, worker, claimed_at, settled_at, elapsed_s,
        message, policy, why, config_hash, settled_by, owner
    )
    SELECT
        d.no, d.token, d.stage, d.starts, d.life, 'success', 'succeeded', %(by)s::bigint,
        d.claimed_at, d.now, d.elapsed_s, '', s.words[d.said], s.words[d.said + 1], s.words[d.said + 2],
        %(by)s::bigint, nullif(d.owner, '')
    FROM shared AS s, done AS d
),
depths AS (
    INSERT INTO perdure_depths AS t (lane, writer, processing, succeeded)
    SELECT lane, -pg_backend_pid(), -count(*), count(*) FROM done GROUP BY lane
    ON CONFLICT (lane, writer) DO UPDATE SET
        processing = t.processing + excluded.processing, succeeded = t.succeeded + excluded.succeeded
),
flows AS (
    INSERT INTO perdure_flows AS t (pipeline, stage, minute, writer, succeeded, attempts)
    SELECT d.pipeline, d.stage, d.now / 60000000, -pg_backend_pid(), count(*), count(*) FROM done AS d
    GROUP BY d.pipeline, d.stage, d.now
    ON CONFLICT (pipeline, stage, minute, writer) DO UPDATE SET
        succeeded = t.succeeded + excluded.succeeded, attempts = t.attempts + excluded.attempts
),
counted AS (
    INSERT INTO perdure_run_counts AS c (run, writer, succeeded, attempts, calls)
    SELECT o.run, coalesce(%(by)s::bigint, -pg_backend_pid()), count(*), count(*),
        count(*) FILTER (WHERE d.called)
    FROM done AS d
    CROSS JOIN LATERAL (VALUES (d.run), (d.redrive_run)) AS o (run)
    WHERE (d.run IS NOT NULL OR d.redrive_run IS NOT NULL) AND o.run IS NOT NULL
    GROUP BY o.run
    ON CONFLICT (run, writer) DO UPDATE SET
        succeeded = c.succeeded + excluded.succeeded, attempts = c.attempts + excluded.attempts,
        calls = c.calls + excluded.calls
),
told AS MATERIALIZED (
    SELECT count(*) AS size, json_agg(d.no) AS nos, json_agg(d.token + 1) AS tokens, json_build_array(
        json_agg(d.no), json_agg(d.id), json_agg(d.owner), json_agg(d.pipeline), json_agg(d.stage), 'succeeded',
        'success', json_agg(d.token + 1), json_agg(d.run)
    ) AS entries, array_agg(d.owner) FILTER (WHERE d.owner <> '') AS owners FROM done AS d
),
owners AS (
    INSERT INTO perdure_owners_ended (owners) SELECT owners FROM told WHERE owners IS NOT NULL
),
lines AS (
    INSERT INTO perdure_changes (changed_at, what, size, entries)
    SELECT clock.now, 'attempt_ended', size, entries FROM clock, told WHERE size > 0
)
SELECT json_build_object(
    'alive', %(by)s::bigint IS NULL OR EXISTS (SELECT 1 FROM writer),
    'some', CASE WHEN size < %(size)s::bigint THEN json_build_array(coalesce(nos, '[]'), coalesce(tokens, '[]')) END
) FROM told
