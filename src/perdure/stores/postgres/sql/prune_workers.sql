-- What another hand holds at this moment is left for the next time.
DELETE FROM perdure_workers WHERE no = ANY (ARRAY(
    SELECT w.no FROM perdure_workers AS w
    WHERE w.settled_at IS NOT NULL AND w.dead_at < %(end)s::bigint
    AND NOT EXISTS (SELECT 1 FROM perdure_jobs AS j WHERE j.worker = w.no)
    AND NOT EXISTS (SELECT 1 FROM perdure_duties AS d WHERE d.worker = w.no)
    ORDER BY w.no LIMIT %(limit)s
    FOR UPDATE OF w SKIP LOCKED
))
