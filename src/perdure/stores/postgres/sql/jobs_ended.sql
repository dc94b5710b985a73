-- Of these jobs, those that have ended, and nothing but the id of those that are not there.
SELECT w.id::text, {j.job_columns}
FROM unnest(%(ids)s::uuid[]) AS w (id)
LEFT JOIN LATERAL (SELECT o.* FROM perdure_jobs AS o WHERE o.id = w.id LIMIT 1) AS j ON true
LEFT JOIN perdure_lanes AS l ON l.no = j.lane
WHERE j.no IS NULL OR j.state IN ('succeeded', 'failed', 'cancelled')
