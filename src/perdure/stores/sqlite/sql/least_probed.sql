SELECT no FROM perdure_jobs WHERE no IN (SELECT value FROM json_each(:nos))
ORDER BY probes, rank_at, no LIMIT 1
