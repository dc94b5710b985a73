SELECT j.id, 'has token ' || j.token || ', its attempts reach ' || max(a.token)
FROM perdure_jobs AS j JOIN perdure_attempts AS a ON a.job = j.no
GROUP BY j.no HAVING max(a.token) >= j.token
