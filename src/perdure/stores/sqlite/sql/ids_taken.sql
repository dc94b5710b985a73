SELECT no, id FROM perdure_jobs WHERE id IN (SELECT value FROM json_each(?))
