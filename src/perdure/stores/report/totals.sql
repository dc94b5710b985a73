-- What all attempts of a run's jobs come to.
WITH jobs AS (
    SELECT no FROM perdure_jobs WHERE run = :run
    UNION ALL
    SELECT no FROM perdure_jobs WHERE redrive_run = :run AND coalesce(run, 0) <> :run
)
SELECT count(*), count(*) FILTER (WHERE a.status <> 'success'), coalesce(sum(a.cost_nusd), 0),
    coalesce(sum(a.cost_nusd) FILTER (WHERE a.status <> 'success'), 0),
    count(*) FILTER (WHERE a.kind IN ('invalid_output', 'truncated_output'))
FROM jobs AS own CROSS JOIN perdure_attempts AS a WHERE a.job = own.no
