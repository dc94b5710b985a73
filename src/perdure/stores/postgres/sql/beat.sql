-- A gap of more than half a lease means that the store or the worker was away: the worker then has
-- to be steady for a whole lease before it may judge others.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
UPDATE perdure_workers AS w SET
    beat_at = clock.now,
    steady_at = CASE WHEN clock.now - w.beat_at > w.ttl_us / 2 THEN clock.now ELSE w.steady_at END
FROM clock
WHERE w.no = ANY (%(workers)s::bigint[]) AND w.dead_at IS NULL
RETURNING w.no
