-- What a run has used up is what the attempts of its jobs have. Of a run that drove dead letters again only some
-- of their attempts count, and pruned attempts tell nothing: those runs are left out.
WITH counted AS (
    SELECT run, sum(attempts) AS attempts, sum(tokens_in) AS tokens_in,
        sum(tokens_out) AS tokens_out, sum(cost_nusd) AS cost_nusd
    FROM perdure_run_counts GROUP BY run
),
found AS (
    SELECT j.run, count(*) AS attempts, sum(a.tokens_in) AS tokens_in,
        sum(a.tokens_out) AS tokens_out, sum(a.cost_nusd) AS cost_nusd
    FROM perdure_jobs AS j JOIN perdure_attempts AS a ON a.job = j.no
    WHERE j.run IS NOT NULL GROUP BY j.run
),
both_sides AS (
    SELECT CAST(r.id AS text) AS id,
        coalesce(c.attempts, 0) AS attempts, coalesce(f.attempts, 0) AS attempts_found,
        coalesce(c.tokens_in, 0) AS tokens_in, coalesce(f.tokens_in, 0) AS tokens_in_found,
        coalesce(c.tokens_out, 0) AS tokens_out, coalesce(f.tokens_out, 0) AS tokens_out_found,
        coalesce(c.cost_nusd, 0) AS cost_nusd, coalesce(f.cost_nusd, 0) AS cost_nusd_found
    FROM perdure_runs AS r LEFT JOIN counted AS c ON c.run = r.no LEFT JOIN found AS f ON f.run = r.no
    WHERE r.parent IS NULL AND NOT EXISTS (SELECT 1 FROM perdure_bulks AS d WHERE d.run = r.no)
    AND NOT EXISTS (SELECT 1 FROM perdure_jobs AS j WHERE j.redrive_run = r.no)
    AND NOT EXISTS (SELECT 1 FROM perdure_books AS b WHERE b.pipeline = r.pipeline AND b.pruned > 0)
)
SELECT id, 'counts ' || attempts || ' attempts, ' || tokens_in || ' tokens in, ' || tokens_out
    || ' tokens out and ' || cost_nusd || ' billionths of a dollar, its attempts show '
    || attempts_found || ', ' || tokens_in_found || ', ' || tokens_out_found || ' and '
    || cost_nusd_found
FROM both_sides
WHERE attempts <> attempts_found OR tokens_in <> tokens_in_found
OR tokens_out <> tokens_out_found OR cost_nusd <> cost_nusd_found
