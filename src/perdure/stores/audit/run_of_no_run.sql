SELECT CAST(j.id AS text), 'belongs to run ' || j.run || ', which does not exist'
FROM perdure_jobs AS j LEFT JOIN perdure_runs AS r ON r.no = j.run
WHERE j.run IS NOT NULL AND r.no IS NULL
UNION ALL
SELECT CAST(j.id AS text), 'is driven again in run ' || j.redrive_run || ', which does not exist'
FROM perdure_jobs AS j LEFT JOIN perdure_runs AS r ON r.no = j.redrive_run
WHERE j.redrive_run IS NOT NULL AND r.no IS NULL
UNION ALL
SELECT 'run number ' || c.run, 'has counts and does not exist'
FROM perdure_run_counts AS c LEFT JOIN perdure_runs AS r ON r.no = c.run
WHERE r.no IS NULL GROUP BY c.run
UNION ALL
SELECT 'run number ' || k.run, 'has failures by kind and does not exist'
FROM perdure_run_kinds AS k LEFT JOIN perdure_runs AS r ON r.no = k.run
WHERE r.no IS NULL GROUP BY k.run
