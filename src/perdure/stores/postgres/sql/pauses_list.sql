SELECT {pause_columns} FROM perdure_pauses
ORDER BY scope COLLATE "C", name COLLATE "C"
