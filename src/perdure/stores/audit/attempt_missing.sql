-- The attempts of a stage are numbered from one on, and anew after a hand-over. A life that is over has failed,
-- by an attempt that says so; only a deadline ends one without, or the end of the run that drove it again.
WITH handed_over AS (
    SELECT job, life, max(token) AS token FROM perdure_attempts
    WHERE status = 'handed_over' GROUP BY job, life
),
tried AS (
    SELECT a.job, a.life, a.stage, a.number, CASE WHEN a.token > h.token THEN 1 ELSE 0 END AS since
    FROM perdure_attempts AS a LEFT JOIN handed_over AS h ON h.job = a.job AND h.life = a.life
)
SELECT CAST(j.id AS text), 'has ' || count(*) || ' attempts of stage ' || t.stage || ' in life ' || t.life
    || ', numbered ' || min(t.number) || ' to ' || max(t.number)
FROM tried AS t JOIN perdure_jobs AS j ON j.no = t.job
GROUP BY j.no, j.id, t.life, t.stage, t.since
HAVING min(t.number) <> 1 OR max(t.number) <> count(*) OR count(DISTINCT t.number) <> count(*)
UNION ALL
SELECT CAST(j.id AS text), 'is in life ' || j.life || ', and ' || (j.life - 1 - count(DISTINCT e.life))
    || ' of those before did not end'
FROM perdure_jobs AS j
LEFT JOIN (
    SELECT job, life FROM perdure_attempts WHERE state = 'failed'
    UNION ALL
    SELECT job, life FROM perdure_redrives
) AS e ON e.job = j.no AND e.life < j.life
WHERE j.life > 1 AND j.deadline_at IS NULL
GROUP BY j.no, j.id, j.life HAVING count(DISTINCT e.life) <> j.life - 1
