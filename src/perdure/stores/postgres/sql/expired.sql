SELECT
    no, id::text, token, lane, pipeline, stage, isolation, run, request_id, past,
    starts, failures, waits, crashes, snoozes, probes, releases, waited_s
FROM perdure_jobs
WHERE deadline_at <= coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
AND ready IS NOT NULL
ORDER BY deadline_at LIMIT %(limit)s
