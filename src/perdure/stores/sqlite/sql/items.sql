-- In the order of `item_out`.
SELECT
    no, id, key, state, result, label, failed_reason, error_kind, error_code, error_message,
    finished_at
FROM perdure_jobs
WHERE run = :run AND no > :after
ORDER BY no LIMIT :limit
