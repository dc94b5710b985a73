-- Free when nobody has it, when its time is over or when its worker is dead or forgotten; kept by whoever has it.
INSERT INTO perdure_duties (name, worker, until_at)
SELECT :name, :worker, :until_at
WHERE EXISTS (SELECT 1 FROM perdure_workers WHERE no = :worker AND dead_at IS NULL)
ON CONFLICT (name) DO UPDATE SET worker = excluded.worker, until_at = excluded.until_at
WHERE perdure_duties.worker = excluded.worker OR perdure_duties.until_at <= :now
OR NOT EXISTS (
    SELECT 1 FROM perdure_workers AS w WHERE w.no = perdure_duties.worker AND w.dead_at IS NULL
)
