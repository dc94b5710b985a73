-- Since when the first in line of each lane could be claimed, where the tallies say that somebody is.
SELECT d.lane, (
    SELECT j.due_at FROM perdure_jobs AS j WHERE j.lane = d.lane AND j.isolation = 0 AND j.ready = 1
    ORDER BY j.rank_at, j.no LIMIT 1
)
FROM (SELECT lane FROM perdure_depths GROUP BY lane HAVING sum(ready) > 0) AS d
