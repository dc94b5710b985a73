SELECT 1 FROM perdure_workers WHERE no = %(worker)s AND dead_at IS NULL
