SELECT j.id, 'stands in lane ' || j.lane || ', which does not exist'
FROM perdure_jobs AS j LEFT JOIN perdure_lanes AS l ON l.no = j.lane
WHERE l.no IS NULL
