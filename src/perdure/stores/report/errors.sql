-- Attempts by failure kind and public code; and how many of them ended their job.
WITH jobs AS (
    SELECT no FROM perdure_jobs WHERE run = :run
    UNION ALL
    SELECT no FROM perdure_jobs WHERE redrive_run = :run AND coalesce(run, 0) <> :run
)
SELECT e.kind, e.code, count(*), count(*) FILTER (WHERE e.status = 'failed')
FROM (
    SELECT a.kind, coalesce(a.code, '') AS code, a.status
    FROM jobs AS own CROSS JOIN perdure_attempts AS a WHERE a.job = own.no AND a.kind IS NOT NULL
) AS e
GROUP BY e.kind, e.code
