DELETE FROM perdure_jobs WHERE no IN (SELECT value FROM json_each(:nos))
