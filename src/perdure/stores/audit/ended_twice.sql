-- One terminal state per life: no attempt may come after the one that ended it.
SELECT j.id, 'ended ' || count(*) || ' times in life ' || a.life
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
WHERE a.state IN ('succeeded', 'failed', 'cancelled')
GROUP BY j.id, a.life HAVING count(*) > 1
UNION ALL
SELECT j.id, 'has an attempt after its end in life ' || last.life
FROM perdure_attempts AS last JOIN perdure_jobs AS j ON j.no = last.job
JOIN perdure_attempts AS later
    ON later.job = last.job AND later.life = last.life AND later.token > last.token
WHERE last.state IN ('succeeded', 'failed', 'cancelled')
GROUP BY j.id, last.life
