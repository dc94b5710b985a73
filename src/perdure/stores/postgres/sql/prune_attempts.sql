-- The attempts of jobs that are pruned; what they had added up to is written down as gone.
WITH jobs AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(jobs)s::jsonb) AS j (no bigint, pipeline text)
),
gone AS (
    DELETE FROM perdure_attempts AS a USING jobs AS j WHERE a.job = j.no
    RETURNING j.pipeline, a.stage, a.counted, a.state, a.tokens_in, a.tokens_out, a.cost_nusd
),
flows AS (
    INSERT INTO perdure_flows AS t (
        pipeline, stage, minute, writer, attempts, retries, waits, tokens_in, tokens_out, cost_nusd
    )
    SELECT
        pipeline, stage, -1, -pg_backend_pid(), count(*),
        count(*) FILTER (WHERE counted = 'failures' AND state IN ('queued', 'processing')),
        count(*) FILTER (WHERE counted = 'waits' AND state IN ('queued', 'processing')),
        sum(tokens_in), sum(tokens_out), sum(cost_nusd)
    FROM gone GROUP BY pipeline, stage
    ON CONFLICT (pipeline, stage, minute, writer) DO UPDATE SET
        attempts = t.attempts + excluded.attempts, retries = t.retries + excluded.retries,
        waits = t.waits + excluded.waits, tokens_in = t.tokens_in + excluded.tokens_in,
        tokens_out = t.tokens_out + excluded.tokens_out, cost_nusd = t.cost_nusd + excluded.cost_nusd
)
SELECT count(*) FROM gone
