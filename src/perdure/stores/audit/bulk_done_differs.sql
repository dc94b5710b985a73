-- A re-drive has done what its run has taken on; of what was pruned since, it cannot be told which was.
WITH taken AS (
    SELECT d.run, count(*) AS jobs FROM perdure_redrives AS d
    LEFT JOIN perdure_redrives AS e ON e.run = d.run AND e.job = d.job AND e.life = d.life - 1
    WHERE e.run IS NULL GROUP BY d.run
),
sums AS (
    SELECT b.run, sum(b.done) AS done, max(coalesce(t.jobs, 0)) AS taken,
        max(coalesce(p.succeeded + p.failed + p.cancelled, 0)) AS pruned
    FROM perdure_bulks AS b
    LEFT JOIN taken AS t ON t.run = b.run LEFT JOIN perdure_run_pruned AS p ON p.run = b.run
    WHERE b.verb = 'redrive' AND b.run IS NOT NULL GROUP BY b.run
)
SELECT CAST(b.id AS text), 'has done ' || s.done || ', its run has taken on ' || s.taken || ', and '
    || s.pruned || ' of the run were pruned'
FROM sums AS s JOIN perdure_bulks AS b ON b.run = s.run
WHERE s.done < s.taken OR s.done > s.taken + s.pruned
