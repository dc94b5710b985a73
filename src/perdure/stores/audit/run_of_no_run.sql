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
UNION ALL
SELECT 'run number ' || p.run, 'has pruned jobs and does not exist'
FROM perdure_run_pruned AS p LEFT JOIN perdure_runs AS r ON r.no = p.run
WHERE r.no IS NULL
UNION ALL
SELECT CAST(c.id AS text), 'comes from run ' || c.parent || ', which does not exist'
FROM perdure_runs AS c LEFT JOIN perdure_runs AS r ON r.no = c.parent
WHERE c.parent IS NOT NULL AND r.no IS NULL
UNION ALL
SELECT CAST(b.id AS text), 'drives again in run ' || b.run || ', which does not exist'
FROM perdure_bulks AS b LEFT JOIN perdure_runs AS r ON r.no = b.run
WHERE b.run IS NOT NULL AND r.no IS NULL
UNION ALL
SELECT coalesce(CAST(j.id AS text), 'job number ' || d.job),
    'had life ' || d.life || ' in run ' || d.run || ', which does not exist'
FROM perdure_redrives AS d LEFT JOIN perdure_runs AS r ON r.no = d.run
LEFT JOIN perdure_jobs AS j ON j.no = d.job
WHERE r.no IS NULL
