-- What all attempts of a run's jobs come to; of what a run drove again, those of the lives that it began.
WITH jobs AS (
    SELECT no, CAST(NULL AS integer) AS driven FROM perdure_jobs WHERE run = :run
    UNION ALL
    SELECT d.job, d.life
    FROM perdure_redrives AS d CROSS JOIN perdure_jobs AS j
    WHERE d.run = :run AND j.no = d.job + 0 AND coalesce(j.run, 0) <> :run
)
SELECT count(*), count(*) FILTER (WHERE a.status <> 'success'), coalesce(sum(a.cost_nusd), 0),
    coalesce(sum(a.cost_nusd) FILTER (WHERE a.status <> 'success'), 0),
    count(*) FILTER (WHERE a.kind IN ('invalid_output', 'truncated_output')),
    count(*) FILTER (WHERE a.status = 'waiting'),
    coalesce(sum(a.due_at - a.settled_at) FILTER (WHERE a.status = 'waiting'), 0)
FROM jobs AS own CROSS JOIN perdure_attempts AS a WHERE a.job = own.no AND a.life = coalesce(own.driven, a.life)
