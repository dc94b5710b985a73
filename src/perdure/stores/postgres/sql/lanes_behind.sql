-- Of these lanes, the ones behind a gate (it is their upstream's, or their credential's) that nothing else closes.
SELECT l.no FROM perdure_lanes AS l
WHERE l.no = ANY (%(lanes)s::bigint[])
AND (l.upstream = %(gate)s OR EXISTS (
    SELECT 1 FROM perdure_gates AS g WHERE g.name = l.upstream AND g.parent = %(gate)s
))
AND l.no NOT IN (SELECT c.lane FROM perdure_closed_lanes AS c WHERE c.gate IS DISTINCT FROM %(gate)s)
