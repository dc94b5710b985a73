-- Which errors are most common, and how many of them ended their sample?
SELECT kind, sum(attempts) AS attempts, sum(final) AS final
FROM perdure_run_errors
WHERE run = :run
GROUP BY kind
ORDER BY attempts DESC, kind
