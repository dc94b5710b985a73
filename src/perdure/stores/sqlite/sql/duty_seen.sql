-- Who has a duty, for how long yet, and whether that worker is alive; one that was forgotten is not.
SELECT d.worker, d.until_at - :now, w.no IS NOT NULL AND w.dead_at IS NULL
FROM perdure_duties AS d LEFT JOIN perdure_workers AS w ON w.no = d.worker
WHERE d.name = :name
