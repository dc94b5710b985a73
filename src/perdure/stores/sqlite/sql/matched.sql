-- Which records the guard of `record.sql` will let pass, read in the same write transaction; and the runs in
-- which their jobs count, and whose they are.
SELECT j.no, j.token, j.run, j.redrive_run, j.owner
FROM json_each(:records) AS r CROSS JOIN perdure_jobs AS j
    ON j.no = r.value ->> 0 AND j.token = r.value ->> 1
