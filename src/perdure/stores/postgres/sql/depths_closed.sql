-- The lanes with tallies from which nothing is claimed, and the gate that closes each, if it is one. As an array, they lead
-- into the view by the key of the lanes: of runs that are over there may be thousands.
SELECT lane, gate FROM perdure_closed_lanes
WHERE lane = ANY (ARRAY(SELECT DISTINCT lane FROM perdure_depths))
