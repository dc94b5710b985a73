SELECT 'job number ' || a.job, 'has ' || count(*) || ' attempts and no job'
FROM perdure_attempts AS a LEFT JOIN perdure_jobs AS j ON j.no = a.job
WHERE j.no IS NULL GROUP BY a.job
