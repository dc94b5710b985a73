-- What is older than an hour is added up.
INSERT INTO perdure_flows (
    pipeline, stage, minute, created, succeeded, failed, cancelled, revived, attempts, retries, waits,
    tokens_in, tokens_out, cost_nusd
)
SELECT pipeline, stage, 0, sum(created), sum(succeeded), sum(failed), sum(cancelled), sum(revived), sum(attempts),
    sum(retries), sum(waits), sum(tokens_in), sum(tokens_out), sum(cost_nusd)
FROM perdure_flows WHERE minute > 0 AND minute < :old GROUP BY pipeline, stage
ON CONFLICT (pipeline, stage, minute, writer) DO UPDATE SET
    created = created + excluded.created, succeeded = succeeded + excluded.succeeded,
    failed = failed + excluded.failed, cancelled = cancelled + excluded.cancelled,
    revived = revived + excluded.revived, attempts = attempts + excluded.attempts,
    retries = retries + excluded.retries, waits = waits + excluded.waits,
    tokens_in = tokens_in + excluded.tokens_in, tokens_out = tokens_out + excluded.tokens_out,
    cost_nusd = cost_nusd + excluded.cost_nusd
