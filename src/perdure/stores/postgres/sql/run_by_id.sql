SELECT
    r.no, r.id::text, r.owner, r.pipeline, r.name, r.status, r.parent, r.settings, r.created_at,
    r.changed_at, r.ended_at,
    coalesce(sum(c.total), 0), coalesce(sum(c.succeeded), 0), coalesce(sum(c.failed), 0),
    coalesce(sum(c.cancelled), 0), coalesce(sum(c.attempts), 0), coalesce(sum(c.retries), 0)
FROM perdure_runs AS r LEFT JOIN perdure_run_counts AS c ON c.run = r.no
WHERE r.id = %(id)s
GROUP BY r.no
