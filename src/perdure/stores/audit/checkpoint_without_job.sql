SELECT 'job number ' || c.job, 'has a checkpoint of stage ' || c.stage || ' and no job'
FROM perdure_checkpoints AS c LEFT JOIN perdure_jobs AS j ON j.no = c.job
WHERE j.no IS NULL
