-- Of these ids, the ones of the run itself and of its jobs.
SELECT r.id::text FROM perdure_runs AS r
WHERE r.no = %(run)s AND r.id = ANY (%(ids)s::uuid[])
UNION ALL
SELECT j.id::text FROM unnest(%(ids)s::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT o.id, o.run, o.redrive_run FROM perdure_jobs AS o WHERE o.id = i.id LIMIT 1
) AS j
WHERE j.run = %(run)s OR j.redrive_run = %(run)s
