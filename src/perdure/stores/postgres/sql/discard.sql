-- Dead letters are dealt with; they stay failed. Guarded by (no, token); only a failed job has a
-- failed_reason. Rows are locked in the order of numbers.
WITH seen AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(targets)s::jsonb) AS s (no bigint, token bigint)
),
held AS MATERIALIZED (
    SELECT j.* FROM (SELECT * FROM seen ORDER BY no) AS s
    CROSS JOIN LATERAL (
        SELECT o.no, o.fingerprint, o.owner, o.pipeline, o.stage, o.failed_reason, o.error_kind, o.error_code
        FROM perdure_jobs AS o
        WHERE o.no = s.no AND o.token = s.token AND o.state = 'failed' AND o.discarded_at IS NULL
        AND (%(owner)s::text IS NULL OR o.owner = %(owner)s::text)
        LIMIT 1
        FOR UPDATE
    ) AS j
),
deaths AS (
    INSERT INTO perdure_deaths AS t (owner, fingerprint, pipeline, stage, reason, kind, code, writer, letters)
    SELECT
        w.owner, coalesce(fingerprint, ''), pipeline, stage, failed_reason, coalesce(error_kind, ''),
        coalesce(error_code, ''), -pg_backend_pid(), -count(*)
    FROM held AS g CROSS JOIN LATERAL (SELECT '' UNION SELECT g.owner) AS w (owner)
    GROUP BY 1, 2, 3, 4, 5, 6, 7
    ON CONFLICT (owner, fingerprint, pipeline, stage, reason, kind, code, writer) DO UPDATE SET
        letters = t.letters + excluded.letters
),
done AS (
    UPDATE perdure_jobs AS j SET
        discarded_at = %(now)s::bigint, token = j.token + 1, updated_at = %(now)s::bigint
    FROM held
    WHERE j.no = held.no
    RETURNING j.no, j.id, j.owner, j.pipeline, j.stage, j.token, j.run
),
lines AS (
    INSERT INTO perdure_changes (changed_at, what, size, entries)
    SELECT %(now)s::bigint, 'job_discarded', t.size, t.entries
    FROM (
        SELECT count(*) AS size, json_build_array(
            json_agg(no), json_agg(id), json_agg(owner), json_agg(pipeline), json_agg(stage), 'failed', NULL,
            json_agg(token), json_agg(run)
        ) AS entries FROM done
    ) AS t
    WHERE t.size > 0
),
owned AS (
    INSERT INTO perdure_owned (owner, job, failed, changed_at)
    SELECT owner, no, true, %(now)s::bigint FROM held WHERE owner <> ''
    ON CONFLICT (owner, job) DO UPDATE SET changed_at = excluded.changed_at
)
SELECT no, token - 1 FROM done
