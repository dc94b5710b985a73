DELETE FROM perdure_attempts WHERE job IN (SELECT value FROM json_each(:nos))
