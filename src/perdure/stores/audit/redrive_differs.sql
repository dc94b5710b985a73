-- A job that was driven again has a run for every life since, and for its present one the run that it names.
SELECT 'job number ' || d.job, 'was driven again in run ' || d.run || ' and does not exist'
FROM perdure_redrives AS d LEFT JOIN perdure_jobs AS j ON j.no = d.job
WHERE j.no IS NULL
UNION ALL
SELECT CAST(j.id AS text), 'is driven again in run ' || j.redrive_run || ', which has not had life ' || j.life || ' of it'
FROM perdure_jobs AS j
LEFT JOIN perdure_redrives AS d ON d.run = j.redrive_run AND d.job = j.no AND d.life = j.life
WHERE j.redrive_run IS NOT NULL AND d.run IS NULL
UNION ALL
SELECT CAST(j.id AS text), 'has life ' || j.life || ' in run ' || d.run || ' and is driven again in '
    || coalesce('run ' || j.redrive_run, 'none')
FROM perdure_redrives AS d JOIN perdure_jobs AS j ON j.no = d.job AND j.life = d.life
WHERE j.redrive_run IS NULL OR j.redrive_run <> d.run
UNION ALL
SELECT CAST(j.id AS text), 'is in life ' || j.life || ' and was driven again in ' || count(*)
    || ' lives, from life ' || min(d.life) || ' on'
FROM perdure_redrives AS d JOIN perdure_jobs AS j ON j.no = d.job
GROUP BY j.no, j.id, j.life
HAVING count(*) <> j.life - min(d.life) + 1 OR count(DISTINCT d.life) <> count(*)
