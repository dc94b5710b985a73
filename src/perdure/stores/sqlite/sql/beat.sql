-- A gap of more than half a lease means that the store or the worker was away: the worker then has
-- to be steady for a whole lease before it may judge others.
UPDATE perdure_workers SET
    beat_at = :now,
    steady_at = CASE WHEN :now - beat_at > ttl_us / 2 THEN :now ELSE steady_at END
WHERE no IN (SELECT value FROM json_each(:workers)) AND dead_at IS NULL
RETURNING no
