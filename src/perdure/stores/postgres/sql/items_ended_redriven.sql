-- As `items_redriven.sql`, in the order in which they ended.
SELECT
    no, id::text, key, state, result, label, failed_reason, error_kind, error_code, error_message,
    finished_at
FROM perdure_jobs
WHERE redrive_run = %(run)s::bigint AND finished_at IS NOT NULL
AND (finished_at, no) > (%(since)s::bigint, %(after)s::bigint)
ORDER BY finished_at, no LIMIT %(limit)s
