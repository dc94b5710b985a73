INSERT INTO perdure_lanes (queue, category, pipeline, stage) VALUES (?, ?, ?, ?)
ON CONFLICT DO NOTHING
