-- What each stage did, and the lowest token at which it did; percentiles by the nearest rank.
WITH jobs AS (
    SELECT no, CAST(NULL AS integer) AS driven FROM perdure_jobs WHERE run = :run
    UNION ALL
    SELECT d.job, d.life
    FROM perdure_redrives AS d CROSS JOIN perdure_jobs AS j
    WHERE d.run = :run AND j.no = d.job + 0 AND coalesce(j.run, 0) <> :run
),
placed AS (
    SELECT a.stage, a.token, a.status, a.elapsed_s, a.tokens_in, a.tokens_out, a.cost_nusd,
        a.status = 'success' AS good,
        row_number() OVER (PARTITION BY a.stage, a.status = 'success' ORDER BY a.elapsed_s) AS place,
        count(*) OVER (PARTITION BY a.stage, a.status = 'success') AS among
    FROM jobs AS own CROSS JOIN perdure_attempts AS a
    WHERE a.job = own.no AND a.life = coalesce(own.driven, a.life)
)
SELECT stage, count(*), count(*) FILTER (WHERE good), count(*) FILTER (WHERE status = 'retrying'),
    count(*) FILTER (WHERE status = 'failed'),
    max(elapsed_s) FILTER (WHERE good AND place = (among * 50 + 99) / 100),
    max(elapsed_s) FILTER (WHERE good AND place = (among * 95 + 99) / 100),
    sum(tokens_in), sum(tokens_out), sum(cost_nusd),
    coalesce(sum(cost_nusd) FILTER (WHERE NOT good), 0), min(token)
FROM placed GROUP BY stage
