-- What the job says of its present stage is what its attempts add up to. A hand-over begins anew: what was
-- tried under the caller's policy does not count under the stage's own.
WITH handed_over AS (
    SELECT job, life, max(token) AS token FROM perdure_attempts
    WHERE status = 'handed_over' GROUP BY job, life
)
SELECT j.id, 'counts ' || j.starts || ' starts, ' || j.failures || ' failures, ' || j.waits
    || ' waits and ' || j.crashes || ' crashes in stage ' || j.stage || ', its attempts show '
    || count(a.job) || ', ' || count(a.job) FILTER (WHERE a.counted LIKE '%failures%') || ', '
    || count(a.job) FILTER (WHERE a.counted LIKE '%waits%') || ' and '
    || count(a.job) FILTER (WHERE a.counted LIKE '%crashes%')
FROM perdure_jobs AS j
LEFT JOIN handed_over AS h ON h.job = j.no AND h.life = j.life
LEFT JOIN perdure_attempts AS a
    ON a.job = j.no AND a.stage = j.stage AND a.life = j.life AND a.token > coalesce(h.token, 0)
GROUP BY j.no
HAVING j.failures <> count(a.job) FILTER (WHERE a.counted LIKE '%failures%')
OR j.waits <> count(a.job) FILTER (WHERE a.counted LIKE '%waits%')
OR j.crashes <> count(a.job) FILTER (WHERE a.counted LIKE '%crashes%')
OR j.starts <> count(a.job) + CASE WHEN j.state = 'processing' THEN 1 ELSE 0 END
