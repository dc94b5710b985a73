SELECT name, pipeline, spec, payload, next_at, ticked_at, ticks FROM perdure_schedules
WHERE %(due_by)s::bigint IS NULL OR next_at <= %(due_by)s::bigint
ORDER BY next_at, name COLLATE "C"
