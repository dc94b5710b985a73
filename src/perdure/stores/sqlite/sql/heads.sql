SELECT rank_at, no FROM perdure_jobs
WHERE lane = :lane AND isolation = :isolation AND ready = 1
ORDER BY rank_at, no LIMIT :limit
