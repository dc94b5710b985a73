INSERT INTO perdure_flows (
    pipeline, stage, minute, created, succeeded, failed, cancelled, revived, attempts, retries, waits,
    tokens_in, tokens_out, cost_nusd
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (pipeline, stage, minute, writer) DO UPDATE SET
    created = created + excluded.created, succeeded = succeeded + excluded.succeeded,
    failed = failed + excluded.failed, cancelled = cancelled + excluded.cancelled,
    revived = revived + excluded.revived, attempts = attempts + excluded.attempts,
    retries = retries + excluded.retries, waits = waits + excluded.waits,
    tokens_in = tokens_in + excluded.tokens_in, tokens_out = tokens_out + excluded.tokens_out,
    cost_nusd = cost_nusd + excluded.cost_nusd
