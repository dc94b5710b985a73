SELECT min((
    SELECT min(j.due_at) FROM perdure_jobs AS j
    WHERE j.lane = l.value AND j.isolation = :isolation AND j.ready = 0
))
FROM json_each(:lanes) AS l
