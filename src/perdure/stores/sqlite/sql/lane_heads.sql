-- The first jobs of a lane, not after a given one.
SELECT rank_at, no FROM perdure_jobs
WHERE lane = :lane AND isolation = :isolation AND ready = 1 AND (rank_at, no) <= (:rank_at, :no)
ORDER BY rank_at, no LIMIT :limit
