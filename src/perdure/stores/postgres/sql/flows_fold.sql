-- Add up what each backend has counted, and the minutes that are older than an hour; rows in use meanwhile stay.
WITH gone AS (
    DELETE FROM perdure_flows WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM perdure_flows
        WHERE writer <> 0 OR (minute > 0 AND minute < %(now)s::bigint / 60000000 - 60)
        LIMIT 10000 FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
),
added AS (
    INSERT INTO perdure_flows AS t (
        pipeline, stage, minute, writer, created, succeeded, failed, cancelled, revived, attempts, retries, waits,
        tokens_in, tokens_out, cost_nusd
    )
    SELECT
        pipeline, stage, CASE WHEN minute < %(now)s::bigint / 60000000 - 60 THEN least(minute, 0) ELSE minute END, 0,
        sum(created), sum(succeeded), sum(failed), sum(cancelled), sum(revived), sum(attempts), sum(retries),
        sum(waits), sum(tokens_in), sum(tokens_out), sum(cost_nusd)
    FROM gone GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (pipeline, stage, minute, writer) DO UPDATE SET
        created = t.created + excluded.created, succeeded = t.succeeded + excluded.succeeded,
        failed = t.failed + excluded.failed, cancelled = t.cancelled + excluded.cancelled,
        revived = t.revived + excluded.revived, attempts = t.attempts + excluded.attempts,
        retries = t.retries + excluded.retries, waits = t.waits + excluded.waits,
        tokens_in = t.tokens_in + excluded.tokens_in, tokens_out = t.tokens_out + excluded.tokens_out,
        cost_nusd = t.cost_nusd + excluded.cost_nusd
)
SELECT count(*) FROM gone
