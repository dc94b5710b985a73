SELECT
    no, id, token, lane, pipeline, stage, isolation, run, request_id, past,
    starts, failures, waits, crashes, snoozes, probes, releases, waited_s
FROM perdure_jobs
WHERE deadline_at <= :now AND ready IS NOT NULL
ORDER BY deadline_at LIMIT :limit
