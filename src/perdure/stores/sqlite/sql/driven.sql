-- The first other job of this one's owner, pipeline and key that is, or was last, driven again in a run.
SELECT o.id
FROM perdure_jobs AS j CROSS JOIN perdure_jobs AS o
    ON o.owner = j.owner AND o.pipeline = j.pipeline AND o.key = j.key AND o.no <> j.no
WHERE j.no = ?1 AND j.key IS NOT NULL AND +o.redrive_run = ?2
ORDER BY o.no LIMIT 1
