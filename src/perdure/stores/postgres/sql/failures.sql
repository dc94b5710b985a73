SELECT pipeline, stage, failed_reason, coalesce(error_kind, ''), count(*) AS n, min(id::text)
FROM perdure_jobs
WHERE failed_reason IS NOT NULL AND (%(pipeline)s::text IS NULL OR pipeline = %(pipeline)s)
GROUP BY pipeline, stage, failed_reason, error_kind
ORDER BY n DESC, pipeline COLLATE "C", stage COLLATE "C", failed_reason COLLATE "C",
    coalesce(error_kind, '') COLLATE "C"
