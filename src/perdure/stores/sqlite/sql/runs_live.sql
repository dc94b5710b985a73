-- `runs_page.sql` among the few that are not over.
SELECT {r.run_columns}
FROM (
    SELECT * FROM perdure_runs
    WHERE ended_at IS NULL AND no >= :floor AND no < :before
    AND (:pipeline IS NULL OR pipeline = :pipeline) AND (:owner IS NULL OR owner = :owner)
    AND (:name IS NULL OR name = :name)
    ORDER BY no DESC LIMIT :limit
) AS r
LEFT JOIN perdure_run_counts AS c ON c.run = r.no
GROUP BY r.no ORDER BY r.no DESC
