-- The page first, then its sums.
SELECT
    r.no, r.id::text, r.owner, r.pipeline, r.name, r.status, r.parent, r.settings, r.created_at,
    r.changed_at, r.ended_at, c.total, c.succeeded, c.failed, c.cancelled, c.attempts, c.retries
FROM (
    SELECT * FROM perdure_runs
    WHERE (%(pipeline)s::text IS NULL OR pipeline = %(pipeline)s) AND no < %(before)s
    ORDER BY no DESC LIMIT %(limit)s
) AS r
CROSS JOIN LATERAL (
    SELECT
        coalesce(sum(total), 0) AS total, coalesce(sum(succeeded), 0) AS succeeded,
        coalesce(sum(failed), 0) AS failed, coalesce(sum(cancelled), 0) AS cancelled,
        coalesce(sum(attempts), 0) AS attempts, coalesce(sum(retries), 0) AS retries
    FROM perdure_run_counts WHERE run = r.no
) AS c
ORDER BY r.no DESC
