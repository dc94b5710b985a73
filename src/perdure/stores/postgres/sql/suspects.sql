-- The closed lanes are looked up once, and only when there is a suspect.
SELECT DISTINCT isolation FROM perdure_jobs
WHERE isolation > 0 AND ready IS NOT NULL
AND due_at <= {now}
AND (%(lanes)s::bigint[] IS NULL OR lane = ANY (%(lanes)s::bigint[]))
AND NOT lane = ANY (ARRAY(SELECT c.lane FROM perdure_closed_lanes AS c WHERE NOT EXISTS (
    SELECT 1 FROM perdure_gates AS g -- it wants a probe, and a suspect may be all that waits for it
    WHERE g.name = c.gate AND g.state = 'held'
    AND g.held_until <= {now}
)))
