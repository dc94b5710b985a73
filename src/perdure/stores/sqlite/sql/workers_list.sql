SELECT no, boot, name, role, ttl_us, started_at, beat_at, steady_at, dead_at, death
FROM perdure_workers ORDER BY dead_at IS NOT NULL, no DESC LIMIT 200
