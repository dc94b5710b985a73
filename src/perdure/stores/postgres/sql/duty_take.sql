-- Free when nobody has it, when its time is over or when its worker is dead; kept by whoever has it. A worker
-- that our snapshot shows as dead is dead for good; one that it does not show yet is taken for alive.
INSERT INTO perdure_duties AS d (name, worker, until_at)
SELECT %(name)s, %(worker)s::bigint, %(until_at)s::bigint
WHERE EXISTS (SELECT 1 FROM perdure_workers WHERE no = %(worker)s AND dead_at IS NULL)
ON CONFLICT (name) DO UPDATE SET worker = excluded.worker, until_at = excluded.until_at
WHERE d.worker = excluded.worker OR d.until_at <= %(now)s::bigint
OR EXISTS (SELECT 1 FROM perdure_workers AS w WHERE w.no = d.worker AND w.dead_at IS NOT NULL)
