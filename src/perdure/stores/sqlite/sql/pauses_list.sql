SELECT {pause_columns} FROM perdure_pauses ORDER BY scope, name
