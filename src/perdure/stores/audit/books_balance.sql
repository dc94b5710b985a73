-- Every item that was accepted is in exactly one state, or was pruned.
SELECT pipeline, 'accepted ' || accepted || ', found ' || found || ' and ' || pruned || ' pruned'
FROM (
    SELECT pipeline, sum(accepted) AS accepted, sum(pruned) AS pruned, sum(found) AS found
    FROM (
        SELECT pipeline, CASE WHEN minute >= 0 THEN created ELSE 0 END AS accepted,
            CASE WHEN minute < 0 THEN created ELSE 0 END AS pruned, 0 AS found
        FROM perdure_flows
        UNION ALL
        SELECT pipeline, 0, 0, count(*) FROM perdure_jobs GROUP BY pipeline
    ) AS parts
    GROUP BY pipeline
) AS sums
WHERE accepted <> found + pruned
