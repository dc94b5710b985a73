DELETE FROM perdure_owned WHERE (owner, job) IN (
    SELECT j.owner, j.no FROM json_each(:nos) AS n CROSS JOIN perdure_jobs AS j ON j.no = n.value WHERE j.owner <> ''
)
