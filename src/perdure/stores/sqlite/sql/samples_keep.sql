-- What a worker that lives has noted about a gate, in place of what it had noted before.
INSERT INTO perdure_gate_samples (gate, worker, saved_at, samples)
SELECT :gate, :worker, :now, :samples
WHERE EXISTS (SELECT 1 FROM perdure_workers WHERE no = :worker AND dead_at IS NULL)
ON CONFLICT (gate, worker) DO UPDATE SET saved_at = excluded.saved_at, samples = excluded.samples
