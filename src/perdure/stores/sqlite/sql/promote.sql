-- Retries and scheduled jobs of one lane whose time has come; their rank is kept.
UPDATE perdure_jobs SET ready = 1
WHERE no IN (
    SELECT no FROM perdure_jobs
    WHERE lane = :lane AND isolation = :isolation AND ready = 0 AND due_at <= :now
    ORDER BY due_at LIMIT :limit
)
RETURNING error_kind
