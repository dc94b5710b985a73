-- The content comes last; for the owner of its job, or for an operator.
SELECT {a.capture_columns}, a.content
FROM perdure_artifacts AS a LEFT JOIN perdure_jobs AS j ON j.no = a.job
WHERE a.id = :id AND (:owner IS NULL OR j.owner = :owner)
