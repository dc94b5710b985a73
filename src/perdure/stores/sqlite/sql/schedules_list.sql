SELECT name, pipeline, spec, payload, next_at, ticked_at, ticks FROM perdure_schedules
WHERE :due_by IS NULL OR next_at <= :due_by
ORDER BY next_at, name
