-- Attempts by failure kind and public code; and how many of them ended their job.
WITH jobs AS (
    SELECT no, CAST(NULL AS integer) AS driven FROM perdure_jobs WHERE run = :run
    UNION ALL
    SELECT d.job, d.life
    FROM perdure_redrives AS d CROSS JOIN perdure_jobs AS j
    WHERE d.run = :run AND j.no = d.job + 0 AND coalesce(j.run, 0) <> :run
)
SELECT e.kind, e.code, count(*), count(*) FILTER (WHERE e.status = 'failed')
FROM (
    SELECT a.kind, coalesce(a.code, '') AS code, a.status
    FROM jobs AS own CROSS JOIN perdure_attempts AS a
    WHERE a.job = own.no AND a.life = coalesce(own.driven, a.life) AND a.kind IS NOT NULL
) AS e
GROUP BY e.kind, e.code
