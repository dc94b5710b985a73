-- What the dead have noted is not read any more.
DELETE FROM perdure_gate_samples AS s
WHERE NOT EXISTS (SELECT 1 FROM perdure_workers AS w WHERE w.no = s.worker AND w.dead_at IS NULL)
