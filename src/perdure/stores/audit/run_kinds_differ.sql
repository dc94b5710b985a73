-- A run's failed jobs by kind are its failed jobs. Of those that were pruned, or that another run has taken over
-- since, the kind is not known: so no kind may count less than its jobs, and the sum is exact.
WITH parts AS (
    SELECT run, kind, failed AS counted, 0 AS found FROM perdure_run_kinds
    UNION ALL
    SELECT run, coalesce(error_kind, ''), 0, 1 FROM perdure_jobs
    WHERE state = 'failed' AND run IS NOT NULL
    UNION ALL
    SELECT d.run, coalesce(j.error_kind, ''), 0, 1
    FROM perdure_redrives AS d JOIN perdure_jobs AS j ON j.no = d.job AND j.life = d.life
    WHERE j.state = 'failed'
),
kinds AS (
    SELECT run, kind, sum(counted) AS counted, sum(found) AS found FROM parts GROUP BY run, kind
),
sums AS (
    SELECT run, sum(failed) AS failed, sum(by_kind) AS by_kind
    FROM (
        SELECT run, failed, 0 AS by_kind FROM perdure_run_counts
        UNION ALL
        SELECT run, 0, failed FROM perdure_run_kinds
    ) AS both_sides
    GROUP BY run
)
SELECT CAST(r.id AS text), 'counts ' || k.counted || ' failed jobs of kind ' || k.kind || ', its jobs are ' || k.found
FROM kinds AS k JOIN perdure_runs AS r ON r.no = k.run
WHERE k.counted < k.found
UNION ALL
SELECT CAST(r.id AS text), 'counts ' || s.failed || ' failed jobs, and ' || s.by_kind || ' by kind'
FROM sums AS s JOIN perdure_runs AS r ON r.no = s.run
WHERE s.failed <> s.by_kind
