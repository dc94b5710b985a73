-- How attempts have ended, each named by its job and token.
SELECT a.job, a.token, a.status
FROM json_each(:claims) AS r CROSS JOIN perdure_attempts AS a
    ON a.job = r.value ->> 0 AND a.token = r.value ->> 1
