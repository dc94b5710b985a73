SELECT {gate_columns} FROM perdure_gates ORDER BY name COLLATE "C"
