-- In the order of `item_out`: what was driven again in a run.
SELECT
    no, id::text, key, state, result, label, failed_reason, error_kind, error_code, error_message,
    finished_at
FROM perdure_jobs
WHERE redrive_run = %(run)s::bigint AND no > %(after)s::bigint ORDER BY no LIMIT %(limit)s
