-- Who has a duty, for how long yet, and whether that worker is alive.
SELECT
    d.worker,
    d.until_at - {now},
    w.dead_at IS NULL
FROM perdure_duties AS d LEFT JOIN perdure_workers AS w ON w.no = d.worker
WHERE d.name = %(name)s
