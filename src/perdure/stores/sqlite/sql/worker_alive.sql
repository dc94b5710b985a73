SELECT 1 FROM perdure_workers WHERE no = ? AND dead_at IS NULL
