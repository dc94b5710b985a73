SELECT pipeline, stage, failed_reason, coalesce(error_kind, ''), count(*) AS n, min(id)
FROM perdure_jobs
WHERE failed_reason IS NOT NULL AND (:pipeline IS NULL OR pipeline = :pipeline)
GROUP BY pipeline, stage, failed_reason, error_kind
ORDER BY n DESC, pipeline, stage, failed_reason, coalesce(error_kind, '')
