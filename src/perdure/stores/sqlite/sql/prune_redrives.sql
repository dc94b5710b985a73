DELETE FROM perdure_redrives WHERE job IN (SELECT value FROM json_each(:nos))
