-- How many jobs of a pipeline, or of all, came in, and how many of them were pruned.
SELECT coalesce(sum(CASE WHEN minute >= 0 THEN created ELSE 0 END), 0), coalesce(sum(CASE WHEN minute < 0 THEN created ELSE 0 END), 0)
FROM perdure_flows WHERE CAST(:pipeline AS text) IS NULL OR pipeline = :pipeline
