-- Of these jobs, the fair ones and their owners.
SELECT no, owner FROM perdure_jobs WHERE no IN (SELECT value FROM json_each(:nos)) AND fair = 1
