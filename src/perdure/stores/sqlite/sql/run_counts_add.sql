INSERT INTO perdure_run_counts (
    run, writer, total, succeeded, failed, cancelled, attempts, retries, tokens_in, tokens_out,
    cost_nusd, calls
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run, writer) DO UPDATE SET
    total = total + excluded.total, succeeded = succeeded + excluded.succeeded,
    failed = failed + excluded.failed, cancelled = cancelled + excluded.cancelled,
    attempts = attempts + excluded.attempts, retries = retries + excluded.retries,
    tokens_in = tokens_in + excluded.tokens_in, tokens_out = tokens_out + excluded.tokens_out,
    cost_nusd = cost_nusd + excluded.cost_nusd, calls = calls + excluded.calls
