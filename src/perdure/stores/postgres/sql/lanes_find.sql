-- Lanes by name, and whether they serve the upstream that is wanted.
SELECT l.no, r.place, l.upstream IS NOT DISTINCT FROM r.upstream
FROM jsonb_to_recordset(%(lanes)s::jsonb) AS r (
    place integer, queue text, category text, pipeline text, stage text, run bigint, upstream text
)
JOIN perdure_lanes AS l
ON l.pipeline = r.pipeline AND l.stage = r.stage AND l.queue = r.queue AND l.category = r.category
AND coalesce(l.run, 0) = coalesce(r.run, 0)
