-- How many jobs stand where, as the tallies say and as the rows are. What has ended in the lane of a run may be counted
-- in the lane of its stage that has none.
SELECT CASE WHEN lane > 0 THEN 'lane number ' || lane ELSE stage || ' of pipeline ' || pipeline || ', queue ' || queue END,
    'the tallies say ' || jobs || ' ' || place || ', the rows are ' || found
FROM (
    SELECT lane, queue, pipeline, stage, place, sum(jobs) AS jobs, sum(found) AS found
    FROM (
        SELECT CASE WHEN p.place IN ('succeeded', 'failed', 'cancelled') AND l.no IS NOT NULL THEN 0 ELSE p.lane END AS lane,
            CASE WHEN p.place IN ('succeeded', 'failed', 'cancelled') THEN l.queue ELSE '' END AS queue,
            CASE WHEN p.place IN ('succeeded', 'failed', 'cancelled') THEN l.pipeline ELSE '' END AS pipeline,
            CASE WHEN p.place IN ('succeeded', 'failed', 'cancelled') THEN l.stage ELSE '' END AS stage,
            p.place, p.jobs, p.found
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
        ) AS p LEFT JOIN perdure_lanes AS l ON l.no = p.lane
    ) AS parts
    GROUP BY lane, queue, pipeline, stage, place
) AS sums
WHERE jobs <> found
