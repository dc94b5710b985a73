-- Guarded by (no, token): one that has been given a new life since stays. What another hand holds at this
-- moment is left for the next time. Rows are locked in the order of numbers.
WITH seen AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(seen)s::jsonb) AS s (no bigint, token bigint)
),
held AS MATERIALIZED (
    SELECT j.no, j.owner FROM seen AS s JOIN perdure_jobs AS j ON j.no = s.no AND j.token = s.token
    ORDER BY j.no
    FOR UPDATE OF j SKIP LOCKED
),
gone AS (
    DELETE FROM perdure_jobs AS j USING held WHERE j.no = held.no
    RETURNING
        j.no, j.pipeline, j.stage, j.run, j.redrive_run, j.life, j.state, j.lane, j.owner, j.fingerprint,
        j.failed_reason, j.error_kind, j.error_code, j.discarded_at
),
depths AS (
    INSERT INTO perdure_depths AS t (lane, writer, succeeded, failed, cancelled)
    SELECT
        lane, -pg_backend_pid(), -count(*) FILTER (WHERE state = 'succeeded'),
        -count(*) FILTER (WHERE state = 'failed'), -count(*) FILTER (WHERE state = 'cancelled')
    FROM gone GROUP BY lane
    ON CONFLICT (lane, writer) DO UPDATE SET
        succeeded = t.succeeded + excluded.succeeded, failed = t.failed + excluded.failed,
        cancelled = t.cancelled + excluded.cancelled
),
flows AS (
    INSERT INTO perdure_flows AS t (pipeline, stage, minute, writer, created, succeeded, failed, cancelled)
    SELECT
        pipeline, stage, -1, -pg_backend_pid(), count(*), count(*) FILTER (WHERE state = 'succeeded'),
        count(*) FILTER (WHERE state = 'failed'), count(*) FILTER (WHERE state = 'cancelled')
    FROM gone GROUP BY pipeline, stage
    ON CONFLICT (pipeline, stage, minute, writer) DO UPDATE SET
        created = t.created + excluded.created, succeeded = t.succeeded + excluded.succeeded,
        failed = t.failed + excluded.failed, cancelled = t.cancelled + excluded.cancelled
),
deaths AS (
    INSERT INTO perdure_deaths AS t (owner, fingerprint, pipeline, stage, reason, kind, code, writer, letters)
    SELECT
        w.owner, coalesce(fingerprint, ''), pipeline, stage, failed_reason, coalesce(error_kind, ''),
        coalesce(error_code, ''), -pg_backend_pid(), -count(*)
    FROM gone AS g CROSS JOIN LATERAL (SELECT '' UNION SELECT g.owner) AS w (owner)
    WHERE state = 'failed' AND discarded_at IS NULL
    GROUP BY 1, 2, 3, 4, 5, 6, 7
    ON CONFLICT (owner, fingerprint, pipeline, stage, reason, kind, code, writer) DO UPDATE SET
        letters = t.letters + excluded.letters
),
owned AS (
    DELETE FROM perdure_owned AS o USING held AS h
    WHERE h.owner <> '' AND o.owner = h.owner AND o.job = h.no
)
SELECT no, pipeline, run, redrive_run, life, state FROM gone
