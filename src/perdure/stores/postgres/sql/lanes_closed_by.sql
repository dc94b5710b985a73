SELECT lane, closed_by FROM perdure_closed_lanes ORDER BY lane, closed_by COLLATE "C"
