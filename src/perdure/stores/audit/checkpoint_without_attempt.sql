-- A stage's result was written by the attempt that succeeded in it.
SELECT CAST(j.id AS text), 'has the result of stage ' || c.stage || ' and no attempt that succeeded with it'
FROM perdure_checkpoints AS c JOIN perdure_jobs AS j ON j.no = c.job
LEFT JOIN perdure_attempts AS a
    ON a.job = c.job AND a.token = c.token AND a.stage = c.stage AND a.status = 'success'
WHERE a.job IS NULL
