SELECT scope, name, reason, paused_by, paused_at FROM perdure_pauses
ORDER BY scope COLLATE "C", name COLLATE "C"
