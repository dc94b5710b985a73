-- What a run counts is what its jobs are, and what those were that were pruned. A run that drove dead letters again
-- counts a job once for every time that it took it on: as what it is while its present life is in that run, and
-- as failed once another run has taken it over.
WITH jobs AS (
    SELECT run, state FROM perdure_jobs WHERE run IS NOT NULL
    UNION ALL
    SELECT d.run, CASE WHEN d.life = j.life THEN j.state ELSE 'failed' END
    FROM perdure_redrives AS d JOIN perdure_jobs AS j ON j.no = d.job
    LEFT JOIN perdure_redrives AS n ON n.run = d.run AND n.job = d.job AND n.life = d.life + 1
    WHERE n.run IS NULL
),
found AS (
    SELECT run, sum(unfinished) AS unfinished, sum(succeeded) AS succeeded, sum(failed) AS failed,
        sum(cancelled) AS cancelled
    FROM (
        SELECT run,
            CASE WHEN state IN ('queued', 'processing') THEN 1 ELSE 0 END AS unfinished,
            CASE WHEN state = 'succeeded' THEN 1 ELSE 0 END AS succeeded,
            CASE WHEN state = 'failed' THEN 1 ELSE 0 END AS failed,
            CASE WHEN state = 'cancelled' THEN 1 ELSE 0 END AS cancelled
        FROM jobs
        UNION ALL
        SELECT run, 0, succeeded, failed, cancelled FROM perdure_run_pruned
    ) AS parts
    GROUP BY run
),
counted AS (
    SELECT run, sum(total) - sum(succeeded) - sum(failed) - sum(cancelled) AS unfinished,
        sum(succeeded) AS succeeded, sum(failed) AS failed, sum(cancelled) AS cancelled
    FROM perdure_run_counts GROUP BY run
),
both_sides AS (
    SELECT CAST(r.id AS text) AS id,
        coalesce(c.unfinished, 0) AS unfinished, coalesce(f.unfinished, 0) AS unfinished_found,
        coalesce(c.succeeded, 0) AS succeeded, coalesce(f.succeeded, 0) AS succeeded_found,
        coalesce(c.failed, 0) AS failed, coalesce(f.failed, 0) AS failed_found,
        coalesce(c.cancelled, 0) AS cancelled, coalesce(f.cancelled, 0) AS cancelled_found
    FROM perdure_runs AS r LEFT JOIN counted AS c ON c.run = r.no LEFT JOIN found AS f ON f.run = r.no
)
SELECT id, 'counts ' || unfinished || ' unfinished, ' || succeeded || ' succeeded, ' || failed
    || ' failed and ' || cancelled || ' cancelled, its jobs are ' || unfinished_found || ', '
    || succeeded_found || ', ' || failed_found || ' and ' || cancelled_found
    || ', those that were pruned included'
FROM both_sides
WHERE unfinished <> unfinished_found OR succeeded <> succeeded_found OR failed <> failed_found
OR cancelled <> cancelled_found
