-- The jobs that had these ids or keys before.
SELECT
    r.id::text, j.no, j.id::text, j.state, j.token, j.stage, j.lane, j.input_from
FROM jsonb_to_recordset(%(jobs)s::jsonb) AS r (id uuid, owner text, pipeline text, run bigint, key text)
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT 1 AS place, a.* FROM perdure_jobs AS a WHERE a.id = r.id
        UNION ALL
        SELECT 2, b.* FROM perdure_jobs AS b
        WHERE b.owner = r.owner AND b.pipeline = r.pipeline AND coalesce(b.run, 0) = coalesce(r.run, 0)
        AND b.key = r.key
    ) AS found ORDER BY place LIMIT 1
) AS j
