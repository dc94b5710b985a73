-- How many counted retries the ended jobs of a run have needed in their last life, and how many each. Of lives that
-- followed each other in a run that drove them again, the last; one that another life followed has failed.
WITH jobs AS (
    SELECT no, life, state FROM perdure_jobs WHERE run = :run
    UNION ALL
    SELECT d.job, d.life, CASE WHEN j.life > d.life THEN 'failed' ELSE j.state END
    FROM perdure_redrives AS d CROSS JOIN perdure_jobs AS j
    WHERE d.run = :run AND j.no = d.job + 0 AND coalesce(j.run, 0) <> :run
    AND (
        SELECT n.life FROM perdure_redrives AS n
        WHERE n.run = d.run AND n.job = d.job AND n.life = d.life + 1
    ) IS NULL
)
SELECT needed.retries, count(*)
FROM (
    SELECT (
        SELECT count(*) FROM perdure_attempts AS a
        WHERE a.job = own.no AND a.life = own.life AND a.status = 'retrying' AND a.counted = 'failures'
    ) AS retries
    FROM jobs AS own WHERE own.state IN ('succeeded', 'failed')
) AS needed
GROUP BY needed.retries ORDER BY needed.retries
