-- What these jobs and their attempts had added up to is written down as gone.
INSERT INTO perdure_flows (
    pipeline, stage, minute, created, succeeded, failed, cancelled, attempts, retries, waits, tokens_in,
    tokens_out, cost_nusd
)
SELECT pipeline, stage, -1, sum(created), sum(succeeded), sum(failed), sum(cancelled), sum(attempts), sum(retries),
    sum(waits), sum(tokens_in), sum(tokens_out), sum(cost_nusd)
FROM (
    SELECT pipeline, stage, 1 AS created, state = 'succeeded' AS succeeded, state = 'failed' AS failed,
        state = 'cancelled' AS cancelled, 0 AS attempts, 0 AS retries, 0 AS waits, 0 AS tokens_in,
        0 AS tokens_out, 0 AS cost_nusd
    FROM perdure_jobs WHERE no IN (SELECT value FROM json_each(:nos))
    UNION ALL
    SELECT j.pipeline, a.stage, 0, 0, 0, 0, 1,
        a.state IN ('queued', 'processing') AND coalesce(a.counted = 'failures', 0),
        a.state IN ('queued', 'processing') AND coalesce(a.counted = 'waits', 0), a.tokens_in, a.tokens_out, a.cost_nusd
    FROM perdure_jobs AS j JOIN perdure_attempts AS a ON a.job = j.no
    WHERE j.no IN (SELECT value FROM json_each(:nos))
)
WHERE true GROUP BY pipeline, stage
ON CONFLICT (pipeline, stage, minute, writer) DO UPDATE SET
    created = created + excluded.created, succeeded = succeeded + excluded.succeeded,
    failed = failed + excluded.failed, cancelled = cancelled + excluded.cancelled,
    attempts = attempts + excluded.attempts, retries = retries + excluded.retries,
    waits = waits + excluded.waits, tokens_in = tokens_in + excluded.tokens_in,
    tokens_out = tokens_out + excluded.tokens_out, cost_nusd = cost_nusd + excluded.cost_nusd
