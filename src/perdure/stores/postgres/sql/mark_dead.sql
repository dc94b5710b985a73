-- One guarded statement: silence alone is not death. The judge must itself have been heard without
-- a gap over half a lease for a whole lease, up to this moment, else it was the store that was away. FOR
-- UPDATE waits for nobody, and a turn under way holds its worker's row: such a worker is not silent.
WITH judge AS MATERIALIZED (
    SELECT no, ttl_us, steady_at FROM perdure_workers
    WHERE no = %(by)s AND dead_at IS NULL AND beat_at + ttl_us / 2 >= %(now)s::bigint
    FOR KEY SHARE
),
silent AS MATERIALIZED (
    SELECT w.no FROM perdure_workers AS w CROSS JOIN judge
    WHERE w.dead_at IS NULL AND w.no <> %(by)s
    AND judge.steady_at + greatest(judge.ttl_us, w.ttl_us) <= %(now)s::bigint
    AND w.beat_at + greatest(judge.ttl_us, w.ttl_us) < %(now)s::bigint
    ORDER BY w.no
    FOR UPDATE OF w SKIP LOCKED
)
UPDATE perdure_workers SET dead_at = %(now)s::bigint, death = %(death)s
WHERE no = ANY (ARRAY(SELECT no FROM silent))
RETURNING no, boot
