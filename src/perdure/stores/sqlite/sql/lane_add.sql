INSERT INTO perdure_lanes (queue, category, pipeline, stage, run, upstream) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET upstream = excluded.upstream
