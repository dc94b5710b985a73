-- Of these jobs, those that have ended, and nothing but the id of those that are not there.
SELECT w.value, {j.job_columns}
FROM json_each(:ids) AS w
LEFT JOIN perdure_jobs AS j ON j.id = w.value
LEFT JOIN perdure_lanes AS l ON l.no = j.lane
WHERE j.no IS NULL OR j.state IN ('succeeded', 'failed', 'cancelled')
