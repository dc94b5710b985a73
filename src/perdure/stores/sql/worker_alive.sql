SELECT 1 FROM perdure_workers WHERE no = :worker AND dead_at IS NULL
