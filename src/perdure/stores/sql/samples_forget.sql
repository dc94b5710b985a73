-- What the dead have noted is not read any more.
DELETE FROM perdure_gate_samples
WHERE NOT EXISTS (
    SELECT 1 FROM perdure_workers AS w WHERE w.no = perdure_gate_samples.worker AND w.dead_at IS NULL
)
