DELETE FROM perdure_payloads WHERE job IN (SELECT value FROM json_each(:nos))
