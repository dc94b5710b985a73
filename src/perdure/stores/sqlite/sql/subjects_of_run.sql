-- Of these ids, the ones of the run itself and of its jobs; by their ids, for a run may have very many jobs.
SELECT r.id FROM perdure_runs AS r
WHERE r.no = :run AND r.id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT j.id FROM perdure_jobs AS j
WHERE j.id IN (SELECT value FROM json_each(:ids)) AND (+j.run = :run OR +j.redrive_run = :run)
