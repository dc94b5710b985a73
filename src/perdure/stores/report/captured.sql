-- Of how many attempts something was put aside and is still kept; asked job by job, which no planner turns round.
WITH jobs AS (
    SELECT no FROM perdure_jobs WHERE run = :run
    UNION ALL
    SELECT no FROM perdure_jobs WHERE redrive_run = :run AND coalesce(run, 0) <> :run
)
SELECT coalesce(sum(found.captured), 0) FROM (
    SELECT (
        SELECT count(DISTINCT c.token) FROM perdure_artifacts AS c WHERE c.job = own.no
    ) AS captured
    FROM jobs AS own
) AS found
