-- The content comes last; for the owner of its job, or for an operator.
SELECT {a.capture_columns}, a.content
FROM perdure_artifacts AS a
CROSS JOIN LATERAL (SELECT j.owner FROM perdure_jobs AS j WHERE j.no = a.job LIMIT 1) AS j
WHERE a.id = %(id)s::uuid AND (%(owner)s::text IS NULL OR j.owner = %(owner)s)
