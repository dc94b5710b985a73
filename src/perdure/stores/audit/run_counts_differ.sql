-- What a run counts is what its jobs are. Pruned jobs stay counted, and so do, in a run that drove dead
-- letters again, those that another run has taken over since: there the counts may be the larger.
WITH jobs AS (
    SELECT run, state FROM perdure_jobs WHERE run IS NOT NULL
    UNION ALL
    SELECT redrive_run, state FROM perdure_jobs WHERE redrive_run IS NOT NULL
),
found AS (
    SELECT run,
        count(*) FILTER (WHERE state IN ('queued', 'processing')) AS unfinished,
        count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE state = 'failed') AS failed,
        count(*) FILTER (WHERE state = 'cancelled') AS cancelled
    FROM jobs GROUP BY run
),
counted AS (
    SELECT run, sum(total) - sum(succeeded) - sum(failed) - sum(cancelled) AS unfinished,
        sum(succeeded) AS succeeded, sum(failed) AS failed, sum(cancelled) AS cancelled
    FROM perdure_run_counts GROUP BY run
),
both_sides AS (
    SELECT r.no, r.id,
        coalesce(c.unfinished, 0) AS unfinished, coalesce(f.unfinished, 0) AS unfinished_found,
        coalesce(c.succeeded, 0) AS succeeded, coalesce(f.succeeded, 0) AS succeeded_found,
        coalesce(c.failed, 0) AS failed, coalesce(f.failed, 0) AS failed_found,
        coalesce(c.cancelled, 0) AS cancelled, coalesce(f.cancelled, 0) AS cancelled_found,
        r.parent IS NOT NULL OR EXISTS (SELECT 1 FROM perdure_bulks AS d WHERE d.run = r.no) OR EXISTS (
            SELECT 1 FROM perdure_books AS b WHERE b.pipeline = r.pipeline AND b.pruned > 0
        ) AS may_count_more
    FROM perdure_runs AS r LEFT JOIN counted AS c ON c.run = r.no LEFT JOIN found AS f ON f.run = r.no
)
SELECT id, 'counts ' || unfinished || ' unfinished, ' || succeeded || ' succeeded, ' || failed
    || ' failed and ' || cancelled || ' cancelled, its jobs are ' || unfinished_found || ', '
    || succeeded_found || ', ' || failed_found || ' and ' || cancelled_found
FROM both_sides
WHERE unfinished <> unfinished_found OR succeeded < succeeded_found OR failed < failed_found
OR cancelled < cancelled_found OR (NOT may_count_more AND (
    succeeded <> succeeded_found OR failed <> failed_found OR cancelled <> cancelled_found
))
