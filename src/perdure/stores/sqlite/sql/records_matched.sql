-- Which records the guard of `record.sql` will let pass, read in the same write transaction; and what their jobs are
-- counted as until now.
SELECT j.no, j.token, j.run, j.redrive_run, j.owner, j.pipeline, j.lane, j.state, j.ready, j.error_kind
FROM json_each(:records) AS r CROSS JOIN perdure_jobs AS j
    ON j.no = r.value ->> 0 AND j.token = r.value ->> 1
