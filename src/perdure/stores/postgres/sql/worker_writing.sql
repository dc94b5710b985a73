-- A worker that lives, and is not declared dead before we have committed.
SELECT no FROM perdure_workers WHERE no = %(worker)s AND dead_at IS NULL FOR KEY SHARE
