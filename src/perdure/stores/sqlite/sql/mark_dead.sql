-- One guarded statement: silence alone is not death. The judge must itself have been heard without
-- a gap over half a lease for a whole lease, up to this moment, else it was the store that was away.
UPDATE perdure_workers AS w SET dead_at = :now, death = :death
WHERE w.dead_at IS NULL AND w.no <> :by
AND EXISTS (
    SELECT 1 FROM perdure_workers AS judge
    WHERE judge.no = :by AND judge.dead_at IS NULL
    AND judge.beat_at + judge.ttl_us / 2 >= :now 
    AND judge.steady_at + max(judge.ttl_us, w.ttl_us) <= :now
    AND w.beat_at + max(judge.ttl_us, w.ttl_us) < :now
)
RETURNING no, boot
