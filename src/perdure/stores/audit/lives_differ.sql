-- Every life but the first was asked for by somebody.
SELECT CAST(id AS text), 'is in life ' || life || ' after ' || retries_manual || ' manual retries' FROM perdure_jobs
WHERE retries_manual <> life - 1
