INSERT INTO perdure_workers (boot, name, role, ttl_us, started_at, beat_at, steady_at)
VALUES (:boot, :name, :role, :ttl_us, :now, :now, :now)
ON CONFLICT (boot) DO UPDATE SET boot = excluded.boot  -- sent again after its answer was lost
RETURNING no
