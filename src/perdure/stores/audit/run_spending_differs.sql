-- What a run has used up is what the attempts of its jobs have, and what those had that were pruned. Of a run that
-- drove dead letters again, those of the lives count that it gave them.
WITH spent AS (
    SELECT j.run, a.state, a.counted, a.tokens_in, a.tokens_out, a.cost_nusd
    FROM perdure_jobs AS j JOIN perdure_attempts AS a ON a.job = j.no
    WHERE j.run IS NOT NULL
    UNION ALL
    SELECT d.run, a.state, a.counted, a.tokens_in, a.tokens_out, a.cost_nusd
    FROM perdure_redrives AS d JOIN perdure_attempts AS a ON a.job = d.job AND a.life = d.life
),
found AS (
    SELECT run, sum(attempts) AS attempts, sum(retries) AS retries, sum(tokens_in) AS tokens_in,
        sum(tokens_out) AS tokens_out, sum(cost_nusd) AS cost_nusd
    FROM (
        SELECT run, 1 AS attempts,
            CASE WHEN counted = 'failures' AND state NOT IN ('succeeded', 'failed', 'cancelled')
                THEN 1 ELSE 0 END AS retries,
            tokens_in, tokens_out, cost_nusd
        FROM spent
        UNION ALL
        SELECT run, attempts, retries, tokens_in, tokens_out, cost_nusd FROM perdure_run_pruned
    ) AS parts
    GROUP BY run
),
counted AS (
    SELECT run, sum(attempts) AS attempts, sum(retries) AS retries, sum(tokens_in) AS tokens_in,
        sum(tokens_out) AS tokens_out, sum(cost_nusd) AS cost_nusd
    FROM perdure_run_counts GROUP BY run
),
both_sides AS (
    SELECT CAST(r.id AS text) AS id,
        coalesce(c.attempts, 0) AS attempts, coalesce(f.attempts, 0) AS attempts_found,
        coalesce(c.retries, 0) AS retries, coalesce(f.retries, 0) AS retries_found,
        coalesce(c.tokens_in, 0) AS tokens_in, coalesce(f.tokens_in, 0) AS tokens_in_found,
        coalesce(c.tokens_out, 0) AS tokens_out, coalesce(f.tokens_out, 0) AS tokens_out_found,
        coalesce(c.cost_nusd, 0) AS cost_nusd, coalesce(f.cost_nusd, 0) AS cost_nusd_found
    FROM perdure_runs AS r LEFT JOIN counted AS c ON c.run = r.no LEFT JOIN found AS f ON f.run = r.no
)
SELECT id, 'counts ' || attempts || ' attempts, ' || retries || ' retries, ' || tokens_in || ' tokens in, '
    || tokens_out || ' tokens out and ' || cost_nusd || ' billionths of a dollar, its attempts show '
    || attempts_found || ', ' || retries_found || ', ' || tokens_in_found || ', ' || tokens_out_found
    || ' and ' || cost_nusd_found || ', those that were pruned included'
FROM both_sides
WHERE attempts <> attempts_found OR retries <> retries_found OR tokens_in <> tokens_in_found
OR tokens_out <> tokens_out_found OR cost_nusd <> cost_nusd_found
