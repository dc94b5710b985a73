-- What the tallies say of a minute has happened in it, as the rows show; or it was pruned. What is older than an hour is
-- added up, so that a minute may say less than the rows, and never more. A job that failed and lives again keeps no
-- moment of that. When a job was revived is in no row at all.
WITH whats AS (
    SELECT 'created' AS what UNION ALL SELECT 'succeeded' UNION ALL SELECT 'failed' UNION ALL SELECT 'cancelled'
    UNION ALL SELECT 'attempts' UNION ALL SELECT 'retries' UNION ALL SELECT 'waits' UNION ALL SELECT 'tokens in'
    UNION ALL SELECT 'tokens out' UNION ALL SELECT 'nano-dollars'
),
flows AS (
    -- A job does not say in which stage it came in.
    SELECT f.pipeline, CASE WHEN w.what = 'created' THEN '' ELSE ', stage ' || f.stage END AS stage, w.what, f.minute,
        CASE w.what WHEN 'created' THEN f.created WHEN 'succeeded' THEN f.succeeded WHEN 'failed' THEN f.failed
            WHEN 'cancelled' THEN f.cancelled WHEN 'attempts' THEN f.attempts WHEN 'retries' THEN f.retries
            WHEN 'waits' THEN f.waits WHEN 'tokens in' THEN f.tokens_in WHEN 'tokens out' THEN f.tokens_out
            ELSE f.cost_nusd END AS told,
        CASE WHEN w.what = 'failed' THEN f.revived ELSE 0 END AS revived
    FROM perdure_flows AS f CROSS JOIN whats AS w
),
gone AS (
    SELECT pipeline, stage, what, sum(CASE WHEN minute < 0 THEN told ELSE revived END) AS jobs FROM flows
    GROUP BY pipeline, stage, what
),
oldest AS (
    SELECT coalesce(min(minute), 0) * 60000000 AS at_us FROM perdure_flows WHERE minute > 0
),
attempts AS (
    SELECT j.pipeline, a.stage, a.settled_at / 60000000 AS minute, count(*) AS attempts,
        sum(CASE WHEN a.state IN ('queued', 'processing') AND a.counted = 'failures' THEN 1 ELSE 0 END) AS retries,
        sum(CASE WHEN a.state IN ('queued', 'processing') AND a.counted = 'waits' THEN 1 ELSE 0 END) AS waits,
        sum(a.tokens_in) AS tokens_in, sum(a.tokens_out) AS tokens_out, sum(a.cost_nusd) AS cost_nusd
    FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
    WHERE a.settled_at >= (SELECT at_us FROM oldest)
    GROUP BY j.pipeline, a.stage, a.settled_at / 60000000
),
parts AS (
    SELECT pipeline, stage, what, minute, told, 0 AS found FROM flows WHERE minute > 0
    UNION ALL
    SELECT pipeline, '', 'created', enqueued_at / 60000000, 0, count(*) FROM perdure_jobs
    WHERE enqueued_at >= (SELECT at_us FROM oldest) GROUP BY pipeline, enqueued_at / 60000000
    UNION ALL
    SELECT pipeline, ', stage ' || stage, state, finished_at / 60000000, 0, count(*) FROM perdure_jobs
    WHERE finished_at >= (SELECT at_us FROM oldest) GROUP BY pipeline, stage, state, finished_at / 60000000
    UNION ALL
    SELECT a.pipeline, ', stage ' || a.stage, w.what, a.minute, 0,
        CASE w.what WHEN 'attempts' THEN a.attempts WHEN 'retries' THEN a.retries WHEN 'waits' THEN a.waits
            WHEN 'tokens in' THEN a.tokens_in WHEN 'tokens out' THEN a.tokens_out ELSE a.cost_nusd END
    FROM attempts AS a CROSS JOIN whats AS w WHERE w.what NOT IN ('created', 'succeeded', 'failed', 'cancelled')
)
SELECT g.pipeline || g.stage, 'the tallies say ' || sum(m.told - m.found) || ' more ' || g.what
    || ' of some minutes than the rows of these, and ' || g.jobs || ' are gone'
FROM gone AS g JOIN (
    SELECT pipeline, stage, what, minute, sum(told) AS told, sum(found) AS found FROM parts
    GROUP BY pipeline, stage, what, minute
) AS m ON m.pipeline = g.pipeline AND m.stage = g.stage AND m.what = g.what
WHERE m.told > m.found
GROUP BY g.pipeline, g.stage, g.what, g.jobs
HAVING sum(m.told - m.found) > g.jobs
