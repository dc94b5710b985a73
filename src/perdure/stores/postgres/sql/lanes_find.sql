SELECT l.no, r.place
FROM jsonb_to_recordset(%(lanes)s::jsonb) AS r (
    place integer, queue text, category text, pipeline text, stage text, run bigint, upstream text
)
JOIN perdure_lanes AS l
ON l.pipeline = r.pipeline AND l.stage = r.stage AND l.queue = r.queue AND l.category = r.category
AND coalesce(l.run, 0) = coalesce(r.run, 0) AND l.upstream IS NOT DISTINCT FROM r.upstream
