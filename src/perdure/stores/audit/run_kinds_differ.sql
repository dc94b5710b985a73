-- A run's failed jobs by kind are its failed jobs. Pruned jobs stay counted, and so do, in a run that drove dead
-- letters again, those that another run has taken over since: there the counts may be the larger.
WITH parts AS (
    SELECT run, kind, failed AS counted, 0 AS found FROM perdure_run_kinds
    UNION ALL
    SELECT run, coalesce(error_kind, ''), 0, 1 FROM perdure_jobs
    WHERE state = 'failed' AND run IS NOT NULL
    UNION ALL
    SELECT redrive_run, coalesce(error_kind, ''), 0, 1 FROM perdure_jobs
    WHERE state = 'failed' AND redrive_run IS NOT NULL
),
kinds AS (
    SELECT run, kind, sum(counted) AS counted, sum(found) AS found FROM parts GROUP BY run, kind
),
runs AS (
    SELECT r.no, CAST(r.id AS text) AS id, r.parent IS NOT NULL OR EXISTS (SELECT 1 FROM perdure_bulks AS d WHERE d.run = r.no) OR EXISTS (
        SELECT 1 FROM perdure_books AS b WHERE b.pipeline = r.pipeline AND b.pruned > 0
    ) AS may_count_more
    FROM perdure_runs AS r
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
SELECT r.id, 'counts ' || k.counted || ' failed jobs of kind ' || k.kind || ', its jobs are ' || k.found
FROM kinds AS k JOIN runs AS r ON r.no = k.run
WHERE k.counted < k.found OR (k.counted <> k.found AND NOT r.may_count_more)
UNION ALL
SELECT r.id, 'counts ' || s.failed || ' failed jobs, and ' || s.by_kind || ' by kind'
FROM sums AS s JOIN runs AS r ON r.no = s.run
WHERE s.failed <> s.by_kind
