SELECT {schedule_columns} FROM perdure_schedules
WHERE %(due_by)s::bigint IS NULL OR next_at <= %(due_by)s::bigint
ORDER BY next_at, name COLLATE "C"
