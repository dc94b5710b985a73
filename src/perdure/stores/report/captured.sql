-- Of how many attempts something was put aside and is still kept; asked job by job, which no planner turns round.
WITH jobs AS (
    SELECT no, CAST(NULL AS integer) AS driven FROM perdure_jobs WHERE run = :run
    UNION ALL
    SELECT d.job, d.life
    FROM perdure_redrives AS d CROSS JOIN perdure_jobs AS j
    WHERE d.run = :run AND j.no = d.job + 0 AND coalesce(j.run, 0) <> :run
)
SELECT coalesce(sum(found.captured), 0) FROM (
    SELECT (
        SELECT count(DISTINCT c.token) FROM perdure_artifacts AS c
        WHERE c.job = own.no AND (
            own.driven IS NULL OR own.driven = (
                SELECT a.life FROM perdure_attempts AS a WHERE a.job = c.job AND a.token = c.token
            )
        )
    ) AS captured
    FROM jobs AS own
) AS found
