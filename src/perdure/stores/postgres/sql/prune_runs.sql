-- What these jobs were in their runs is kept before they go: how they ended, and what their attempts came to. In a
-- run that drove them again each stands once for every time that it was taken on, with the lives that it had there;
-- where another run has taken it over since, it had failed.
WITH gone AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(gone)s::jsonb) AS g (no bigint, run bigint, life integer, state text)
),
endings AS (
    SELECT run, state FROM gone WHERE run IS NOT NULL
    UNION ALL
    SELECT d.run, CASE WHEN d.life = g.life THEN g.state ELSE 'failed' END
    FROM gone AS g JOIN perdure_redrives AS d ON d.job = g.no
    LEFT JOIN perdure_redrives AS n ON n.run = d.run AND n.job = d.job AND n.life = d.life + 1
    WHERE n.run IS NULL
),
spent AS (
    SELECT g.run, a.state, a.counted, a.tokens_in, a.tokens_out, a.cost_nusd
    FROM gone AS g JOIN perdure_attempts AS a ON a.job = g.no
    WHERE g.run IS NOT NULL
    UNION ALL
    SELECT d.run, a.state, a.counted, a.tokens_in, a.tokens_out, a.cost_nusd
    FROM gone AS g JOIN perdure_redrives AS d ON d.job = g.no
    JOIN perdure_attempts AS a ON a.job = d.job AND a.life = d.life
),
parts AS (
    SELECT run, CASE WHEN state = 'succeeded' THEN 1 ELSE 0 END AS succeeded,
        CASE WHEN state = 'failed' THEN 1 ELSE 0 END AS failed,
        CASE WHEN state = 'cancelled' THEN 1 ELSE 0 END AS cancelled,
        0 AS attempts, 0 AS retries, 0 AS tokens_in, 0 AS tokens_out, 0 AS cost_nusd
    FROM endings
    UNION ALL
    SELECT run, 0, 0, 0, 1,
        CASE WHEN counted = 'failures' AND state NOT IN ('succeeded', 'failed', 'cancelled')
            THEN 1 ELSE 0 END,
        tokens_in, tokens_out, cost_nusd
    FROM spent
)
INSERT INTO perdure_run_pruned AS p (
    run, succeeded, failed, cancelled, attempts, retries, tokens_in, tokens_out, cost_nusd
)
SELECT run, sum(succeeded), sum(failed), sum(cancelled), sum(attempts), sum(retries), sum(tokens_in),
    sum(tokens_out), sum(cost_nusd)
FROM parts WHERE true GROUP BY run ORDER BY run
ON CONFLICT (run) DO UPDATE SET
    succeeded = p.succeeded + excluded.succeeded, failed = p.failed + excluded.failed,
    cancelled = p.cancelled + excluded.cancelled, attempts = p.attempts + excluded.attempts,
    retries = p.retries + excluded.retries, tokens_in = p.tokens_in + excluded.tokens_in,
    tokens_out = p.tokens_out + excluded.tokens_out, cost_nusd = p.cost_nusd + excluded.cost_nusd
