-- In the order of `item_out`.
SELECT
    no, id, key, state, result, label, failed_reason, error_kind, error_code, error_message,
    finished_at
FROM perdure_jobs
WHERE run = :run AND finished_at IS NOT NULL AND (finished_at, no) > (:since, :after)
ORDER BY finished_at, no LIMIT :limit
