SELECT no, upstream FROM perdure_lanes
WHERE queue = ? AND category = ? AND pipeline = ? AND stage = ? AND coalesce(run, 0) = coalesce(?, 0)
