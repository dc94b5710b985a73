-- How many counted retries the ended jobs of a run have needed in their last life, and how many each.
WITH jobs AS (
    SELECT no, life, state FROM perdure_jobs WHERE run = :run
    UNION ALL
    SELECT no, life, state FROM perdure_jobs WHERE redrive_run = :run AND coalesce(run, 0) <> :run
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
