-- A committed stage is never run to a second success in the same life.
SELECT j.id, 'finished stage ' || a.stage || ' ' || count(*) || ' times in life ' || a.life
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
WHERE a.status = 'success'
GROUP BY j.id, a.life, a.stage HAVING count(*) > 1
