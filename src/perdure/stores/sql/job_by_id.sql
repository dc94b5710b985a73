SELECT {j.job_columns}
FROM perdure_jobs AS j LEFT JOIN perdure_lanes AS l ON l.no = j.lane
WHERE j.id = :id AND j.owner = coalesce(:owner, j.owner)
