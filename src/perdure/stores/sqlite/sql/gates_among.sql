SELECT {gate_columns} FROM perdure_gates
WHERE name IN (SELECT value FROM json_each(:names)) ORDER BY name
