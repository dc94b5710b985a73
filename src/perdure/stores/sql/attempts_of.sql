SELECT {attempt_columns} FROM perdure_attempts WHERE job = :job ORDER BY token
