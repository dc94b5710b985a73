-- Add up what callers have counted, each backend in a row of its own; rows in use meanwhile stay.
WITH gone AS (
    DELETE FROM perdure_run_counts WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM perdure_run_counts WHERE writer < 0
        ORDER BY run, writer LIMIT 10000 FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
),
added AS (
    INSERT INTO perdure_run_counts AS c (
        run, writer, total, succeeded, failed, cancelled, attempts, retries, tokens_in, tokens_out, cost_nusd,
        calls
    )
    SELECT
        run, 0, sum(total), sum(succeeded), sum(failed), sum(cancelled), sum(attempts), sum(retries),
        sum(tokens_in), sum(tokens_out), sum(cost_nusd), sum(calls)
    FROM gone GROUP BY run ORDER BY run
    ON CONFLICT (run, writer) DO UPDATE SET
        total = c.total + excluded.total, succeeded = c.succeeded + excluded.succeeded,
        failed = c.failed + excluded.failed, cancelled = c.cancelled + excluded.cancelled,
        attempts = c.attempts + excluded.attempts, retries = c.retries + excluded.retries,
        tokens_in = c.tokens_in + excluded.tokens_in, tokens_out = c.tokens_out + excluded.tokens_out,
        cost_nusd = c.cost_nusd + excluded.cost_nusd, calls = c.calls + excluded.calls
)
SELECT count(*) FROM gone
