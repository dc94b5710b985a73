SELECT no FROM perdure_jobs WHERE no IN (SELECT value FROM json_each(:nos))
ORDER BY starts, rank_at, no LIMIT 1
