DELETE FROM perdure_checkpoints WHERE job IN (SELECT value FROM json_each(:nos))
