INSERT INTO perdure_run_counts (run, writer, total, succeeded, failed, cancelled, attempts, retries)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run, writer) DO UPDATE SET
    total = total + excluded.total, succeeded = succeeded + excluded.succeeded,
    failed = failed + excluded.failed, cancelled = cancelled + excluded.cancelled,
    attempts = attempts + excluded.attempts, retries = retries + excluded.retries
