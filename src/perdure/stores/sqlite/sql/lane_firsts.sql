-- Of these lanes, the ones with a job that can run now, and the first job of each; one probe of the index each.
SELECT j.rank_at, j.no, j.lane
FROM json_each(:lanes) AS l CROSS JOIN perdure_jobs AS j
    ON j.no = (
        SELECT h.no FROM perdure_jobs AS h
        WHERE h.lane = l.value AND h.isolation = :isolation AND h.ready = 1
        ORDER BY h.rank_at, h.no LIMIT 1
    )
