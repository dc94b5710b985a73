DELETE FROM perdure_artifacts WHERE job IN (SELECT value FROM json_each(:nos))
