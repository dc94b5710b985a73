-- Dead letters by what they died of; of one owner, or of all.
SELECT fingerprint, pipeline, stage, reason, kind, code, sum(letters), sum(ever), min(first_at), max(last_at)
FROM perdure_deaths
WHERE owner = :owner AND (CAST(:pipeline AS text) IS NULL OR pipeline = :pipeline)
GROUP BY fingerprint, pipeline, stage, reason, kind, code
