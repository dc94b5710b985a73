-- What has happened, as the tallies say, is what the rows show, and what those showed that were pruned. A job that was
-- revived had failed, and every life of a job but its first was a revival. Of jobs that were pruned nobody knows how many
-- lives they had: where some were, there may be more revivals than the lives that are left.
SELECT pipeline || ', stage ' || stage, 'the tallies say ' || told || ' ' || what || ', the rows show ' || found
FROM (
    SELECT pipeline, stage, what, sum(told) AS told, sum(found) AS found
    FROM (
        SELECT pipeline, stage, 'succeeded' AS what,
            CASE WHEN minute < 0 THEN -succeeded ELSE succeeded END AS told, 0 AS found
        FROM perdure_flows
        UNION ALL
        SELECT pipeline, stage, 'failed', CASE WHEN minute < 0 THEN -failed ELSE failed - revived END, 0 FROM perdure_flows
        UNION ALL
        SELECT pipeline, stage, 'cancelled', CASE WHEN minute < 0 THEN -cancelled ELSE cancelled END, 0 FROM perdure_flows
        UNION ALL
        SELECT pipeline, stage, 'attempts', CASE WHEN minute < 0 THEN -attempts ELSE attempts END, 0 FROM perdure_flows
        UNION ALL
        SELECT pipeline, stage, 'retries', CASE WHEN minute < 0 THEN -retries ELSE retries END, 0 FROM perdure_flows
        UNION ALL
        SELECT pipeline, stage, 'waits', CASE WHEN minute < 0 THEN -waits ELSE waits END, 0 FROM perdure_flows
        UNION ALL
        SELECT pipeline, stage, 'tokens in', CASE WHEN minute < 0 THEN -tokens_in ELSE tokens_in END, 0 FROM perdure_flows
        UNION ALL
        SELECT pipeline, stage, 'tokens out', CASE WHEN minute < 0 THEN -tokens_out ELSE tokens_out END, 0 FROM perdure_flows
        UNION ALL
        SELECT pipeline, stage, 'nano-dollars', CASE WHEN minute < 0 THEN -cost_nusd ELSE cost_nusd END, 0 FROM perdure_flows
        UNION ALL
        SELECT pipeline, stage, state, 0, 1 FROM perdure_jobs WHERE finished_at IS NOT NULL
        UNION ALL
        SELECT j.pipeline, a.stage, w.what, 0,
            CASE w.what WHEN 'attempts' THEN 1 WHEN 'tokens in' THEN a.tokens_in WHEN 'tokens out' THEN a.tokens_out
                WHEN 'nano-dollars' THEN a.cost_nusd
                ELSE CASE WHEN a.state IN ('queued', 'processing')
                    AND a.counted = CASE w.what WHEN 'retries' THEN 'failures' ELSE 'waits' END THEN 1 ELSE 0 END
            END
        FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
        CROSS JOIN (
            SELECT 'attempts' AS what UNION ALL SELECT 'retries' UNION ALL SELECT 'waits' UNION ALL SELECT 'tokens in'
            UNION ALL SELECT 'tokens out' UNION ALL SELECT 'nano-dollars'
        ) AS w
    ) AS parts
    GROUP BY pipeline, stage, what
) AS sums
WHERE told <> found
UNION ALL
SELECT pipeline, 'the tallies say ' || revived || ' revived, the rows show ' || lives || ', and ' || pruned || ' were pruned'
FROM (
    SELECT pipeline, sum(revived) AS revived, sum(pruned) AS pruned, sum(lives) AS lives
    FROM (
        SELECT pipeline, CASE WHEN minute < 0 THEN 0 ELSE revived END AS revived,
            CASE WHEN minute < 0 THEN created ELSE 0 END AS pruned, 0 AS lives
        FROM perdure_flows
        UNION ALL
        SELECT pipeline, 0, 0, life - 1 FROM perdure_jobs WHERE life > 1
    ) AS both_sides
    GROUP BY pipeline
) AS pipelines
WHERE revived < lives OR (revived > lives AND pruned = 0)
