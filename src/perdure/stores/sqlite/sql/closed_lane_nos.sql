SELECT lane FROM perdure_closed_lanes
