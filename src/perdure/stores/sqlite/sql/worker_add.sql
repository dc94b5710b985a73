INSERT INTO perdure_workers (boot, name, role, ttl_us, started_at, beat_at, steady_at)
VALUES (:boot, :name, :role, :ttl_us, :now, :now, :now)
RETURNING no
