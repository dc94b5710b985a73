-- As `run_counts_fold.sql`, for failed jobs by kind.
WITH gone AS (
    DELETE FROM perdure_run_kinds WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM perdure_run_kinds WHERE writer < 0
        ORDER BY run, writer, kind LIMIT 10000 FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
),
added AS (
    INSERT INTO perdure_run_kinds AS k (run, writer, kind, failed)
    SELECT run, 0, kind, sum(failed) FROM gone GROUP BY run, kind ORDER BY run, kind
    ON CONFLICT (run, writer, kind) DO UPDATE SET failed = k.failed + excluded.failed
)
SELECT count(*) FROM gone
