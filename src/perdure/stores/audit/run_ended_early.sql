-- A run has finished when all of its items are in, and none of them is open.
SELECT CAST(r.id AS text), 'is ' || r.status || ' and not sealed' FROM perdure_runs AS r
WHERE r.status IN ('completed', 'partial_success', 'failed') AND r.sealed_at IS NULL
UNION ALL
SELECT CAST(r.id AS text), 'is ' || r.status || ', and job ' || CAST(j.id AS text) || ' is ' || j.state
FROM perdure_runs AS r JOIN perdure_jobs AS j ON j.run = r.no
WHERE r.status IN ('completed', 'partial_success', 'failed') AND j.state IN ('queued', 'processing')
UNION ALL
SELECT CAST(r.id AS text), 'is ' || r.status || ', and job ' || CAST(j.id AS text) || ' is ' || j.state
FROM perdure_runs AS r JOIN perdure_jobs AS j ON j.redrive_run = r.no
WHERE r.status IN ('completed', 'partial_success', 'failed') AND j.state IN ('queued', 'processing')
