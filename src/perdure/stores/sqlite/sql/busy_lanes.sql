-- Of these lanes, the ones with a job that can run now; one probe of the index each.
SELECT l.value FROM json_each(:lanes) AS l
WHERE EXISTS (
    SELECT 1 FROM perdure_jobs AS j
    WHERE j.lane = l.value AND j.isolation = :isolation AND j.ready = 1
)
