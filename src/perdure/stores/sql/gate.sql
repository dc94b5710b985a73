SELECT {gate_columns} FROM perdure_gates WHERE name = :name
