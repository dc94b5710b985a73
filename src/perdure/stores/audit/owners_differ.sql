-- How many jobs of an owner are open, as the tallies say and as the rows are.
SELECT owner, 'the tallies say ' || open || ' open jobs of this owner, the rows are ' || found
FROM (
    SELECT owner, sum(open) AS open, sum(found) AS found
    FROM (
        SELECT owner, open, 0 AS found FROM perdure_open_jobs
        UNION ALL
        SELECT owner, 0, count(*) FROM perdure_jobs
        WHERE owner <> '' AND (ready IS NOT NULL OR worker IS NOT NULL) GROUP BY owner
    ) AS parts
    GROUP BY owner
) AS sums
WHERE open <> found
