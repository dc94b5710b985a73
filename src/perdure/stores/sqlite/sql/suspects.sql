SELECT DISTINCT isolation FROM perdure_jobs
WHERE isolation > 0 AND ready IS NOT NULL AND due_at <= :now
AND (:lanes IS NULL OR lane IN (SELECT value FROM json_each(:lanes)))
AND lane NOT IN (SELECT lane FROM perdure_closed_lanes)
