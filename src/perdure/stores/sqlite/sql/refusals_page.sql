SELECT f.job, coalesce(j.id, ''), f.why
FROM perdure_bulk_refusals AS f LEFT JOIN perdure_jobs AS j ON j.no = f.job
WHERE f.bulk = :bulk AND f.job > :after
ORDER BY f.job LIMIT :limit
