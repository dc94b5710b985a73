-- The rows of a page whose numbers are known.
SELECT {j.job_columns}
FROM perdure_jobs AS j LEFT JOIN perdure_lanes AS l ON l.no = j.lane
WHERE j.no = ANY (%(nos)s::bigint[])
ORDER BY j.no DESC
