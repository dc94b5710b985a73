SELECT {schedule_columns} FROM perdure_schedules
WHERE :due_by IS NULL OR next_at <= :due_by
ORDER BY next_at, name
