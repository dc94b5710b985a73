-- The lanes with tallies from which nothing is claimed, and the gate that closes each, if it is one.
SELECT lane, gate FROM perdure_closed_lanes WHERE lane IN (SELECT lane FROM perdure_depths)
