-- Everybody whom nobody has declared dead.
SELECT no FROM perdure_workers WHERE dead_at IS NULL
