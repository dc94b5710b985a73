-- How many jobs stand where, as the tallies say and as the rows are.
SELECT 'lane number ' || lane, 'the tallies say ' || jobs || ' ' || place || ', the rows are ' || found
FROM (
    SELECT lane, place, sum(jobs) AS jobs, sum(found) AS found
    FROM (
        SELECT lane, 'ready' AS place, ready AS jobs, 0 AS found FROM perdure_depths
        UNION ALL SELECT lane, 'waiting', waiting, 0 FROM perdure_depths
        UNION ALL SELECT lane, 'retrying', retrying, 0 FROM perdure_depths
        UNION ALL SELECT lane, 'processing', processing, 0 FROM perdure_depths
        UNION ALL SELECT lane, 'succeeded', succeeded, 0 FROM perdure_depths
        UNION ALL SELECT lane, 'failed', failed, 0 FROM perdure_depths
        UNION ALL SELECT lane, 'cancelled', cancelled, 0 FROM perdure_depths
        UNION ALL
        SELECT lane, CASE WHEN state <> 'queued' THEN state WHEN ready = 1 THEN 'ready'
            WHEN error_kind IS NULL THEN 'waiting' ELSE 'retrying' END, 0, 1
        FROM perdure_jobs
    ) AS parts
    GROUP BY lane, place
) AS sums
WHERE jobs <> found
