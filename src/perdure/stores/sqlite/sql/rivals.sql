-- For these jobs, the first of the others of their owner, pipeline and key, in whatever run, that is alive.
SELECT j.no, r.id
FROM perdure_jobs AS j CROSS JOIN perdure_jobs AS r
    ON r.no = (
        SELECT o.no FROM perdure_jobs AS o
        WHERE o.owner = j.owner AND o.pipeline = j.pipeline AND o.key = j.key AND o.no <> j.no
        AND (o.state = 'queued' OR o.state = 'processing')
        ORDER BY o.no LIMIT 1
    )
WHERE j.no IN (SELECT value FROM json_each(:nos)) AND j.key IS NOT NULL
