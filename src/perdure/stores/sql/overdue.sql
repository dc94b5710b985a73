SELECT EXISTS (SELECT 1 FROM perdure_workers WHERE dead_at IS NULL AND beat_at + ttl_us < {now})
    OR EXISTS (SELECT 1 FROM perdure_workers WHERE dead_at IS NOT NULL AND settled_at IS NULL)
