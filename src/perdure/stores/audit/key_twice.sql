-- Same key, same job.
SELECT min(CAST(id AS text)), 'shares its key with ' || (count(*) - 1) || ' others'
FROM perdure_jobs
WHERE key IS NOT NULL GROUP BY owner, pipeline, coalesce(run, 0), key HAVING count(*) > 1
