SELECT no FROM perdure_lanes
