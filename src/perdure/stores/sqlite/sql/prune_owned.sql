DELETE FROM perdure_owned WHERE (owner, ended, job) IN (
    SELECT j.owner, CASE j.state WHEN 'succeeded' THEN 1 WHEN 'failed' THEN 2 WHEN 'cancelled' THEN 3 ELSE 0 END, j.no
    FROM json_each(:nos) AS n CROSS JOIN perdure_jobs AS j ON j.no = n.value
    WHERE j.owner <> ''
)
