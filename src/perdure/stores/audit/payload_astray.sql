-- A payload that was replaced belongs to a job and to a life that has ended; one that waits for its job, to a bulk
-- operation that is not done.
SELECT 'job number ' || p.job, 'has a payload of life ' || p.life || ' and no job'
FROM perdure_payloads AS p LEFT JOIN perdure_jobs AS j ON j.no = p.job
WHERE j.no IS NULL
UNION ALL
SELECT CAST(j.id AS text), 'is in life ' || j.life || ' and keeps a payload of life ' || p.life
FROM perdure_payloads AS p JOIN perdure_jobs AS j ON j.no = p.job
WHERE p.life >= j.life OR p.life < 1
UNION ALL
SELECT 'bulk number ' || p.bulk, 'keeps ' || count(*) || ' payloads and ' || coalesce('is ' || min(b.status), 'does not exist')
FROM perdure_bulk_payloads AS p LEFT JOIN perdure_bulks AS b ON b.no = p.bulk
WHERE b.no IS NULL OR b.status = 'done'
GROUP BY p.bulk
