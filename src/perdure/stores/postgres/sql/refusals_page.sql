SELECT f.job, coalesce(j.id::text, ''), f.why
FROM (
    SELECT * FROM perdure_bulk_refusals WHERE bulk = %(bulk)s::bigint AND job > %(after)s::bigint
    ORDER BY job LIMIT %(limit)s
) AS f
LEFT JOIN LATERAL (SELECT o.id FROM perdure_jobs AS o WHERE o.no = f.job LIMIT 1) AS j ON true
ORDER BY f.job
