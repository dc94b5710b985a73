-- Add up what each backend has counted; rows in use meanwhile stay.
WITH gone AS (
    DELETE FROM perdure_depths WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM perdure_depths WHERE writer <> 0 LIMIT 10000 FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
),
added AS (
    INSERT INTO perdure_depths AS t (
        lane, writer, ready, waiting, retrying, processing, succeeded, failed, cancelled
    )
    SELECT
        lane, 0, sum(ready), sum(waiting), sum(retrying), sum(processing), sum(succeeded), sum(failed),
        sum(cancelled)
    FROM gone GROUP BY lane ORDER BY lane
    ON CONFLICT (lane, writer) DO UPDATE SET
        ready = t.ready + excluded.ready, waiting = t.waiting + excluded.waiting,
        retrying = t.retrying + excluded.retrying, processing = t.processing + excluded.processing,
        succeeded = t.succeeded + excluded.succeeded, failed = t.failed + excluded.failed,
        cancelled = t.cancelled + excluded.cancelled
)
SELECT count(*) FROM gone
