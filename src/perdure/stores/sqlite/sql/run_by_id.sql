SELECT {r.run_columns}
FROM perdure_runs AS r LEFT JOIN perdure_run_counts AS c ON c.run = r.no
WHERE r.id = :id AND r.owner = coalesce(:owner, r.owner)
GROUP BY r.no
