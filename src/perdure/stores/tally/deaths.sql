-- Dead letters by what they died of.
SELECT fingerprint, pipeline, stage, reason, kind, code, sum(letters), sum(ever), min(first_at), max(last_at)
FROM perdure_deaths
WHERE (CAST(:owner AS text) IS NULL OR owner = :owner) AND (CAST(:pipeline AS text) IS NULL OR pipeline = :pipeline)
GROUP BY fingerprint, pipeline, stage, reason, kind, code
