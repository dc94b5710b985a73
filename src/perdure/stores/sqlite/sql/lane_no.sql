SELECT no FROM perdure_lanes WHERE queue = ? AND category = ? AND pipeline = ? AND stage = ?
