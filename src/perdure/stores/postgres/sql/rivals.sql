-- For each of these jobs the first other one of its owner, pipeline and key that is alive, in whatever run.
SELECT j.no, s.id
FROM unnest(%(nos)s::bigint[]) AS n (no)
CROSS JOIN LATERAL (
    SELECT o.no, o.owner, o.pipeline, o.key FROM perdure_jobs AS o WHERE o.no = n.no LIMIT 1
) AS j
CROSS JOIN LATERAL (
    SELECT o.id::text AS id FROM perdure_jobs AS o
    WHERE o.owner = j.owner AND o.pipeline = j.pipeline AND o.key = j.key
    AND o.no <> j.no AND o.state IN ('queued', 'processing')
    ORDER BY o.no LIMIT 1
) AS s
WHERE j.key IS NOT NULL
