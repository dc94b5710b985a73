-- In the order of `item_out`: the items of a run.
SELECT
    no, id::text, key, state, result, label, failed_reason, error_kind, error_code, error_message,
    finished_at
FROM perdure_jobs
WHERE run = %(run)s::bigint AND no > %(after)s::bigint ORDER BY no LIMIT %(limit)s
