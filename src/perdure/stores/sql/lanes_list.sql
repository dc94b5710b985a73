SELECT no, queue, category, pipeline, stage, run, upstream FROM perdure_lanes ORDER BY no
