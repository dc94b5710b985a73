-- Of these lanes, the ones behind a gate (it is their upstream's, or their credential's) that nothing else closes.
SELECT l.no FROM perdure_lanes AS l
WHERE l.no IN (SELECT value FROM json_each(:lanes))
AND (l.upstream = :gate OR EXISTS (
    SELECT 1 FROM perdure_gates AS g WHERE g.name = l.upstream AND g.parent = :gate
))
AND l.no NOT IN (SELECT c.lane FROM perdure_closed_lanes AS c WHERE c.gate IS NOT :gate)
