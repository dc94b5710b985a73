INSERT INTO perdure_lanes (queue, category, pipeline, stage, run, upstream)
VALUES (%(queue)s, %(category)s, %(pipeline)s, %(stage)s, %(run)s, %(upstream)s)
ON CONFLICT (pipeline, stage, queue, category, coalesce(run, 0))
DO UPDATE SET upstream = excluded.upstream
RETURNING no
