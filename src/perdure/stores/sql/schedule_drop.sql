DELETE FROM perdure_schedules WHERE name = :name
