-- The page first, then its sums.
SELECT {r.run_columns}
FROM (
    SELECT * FROM perdure_runs
    WHERE no >= %(floor)s::bigint AND no < %(before)s::bigint
    AND (%(pipeline)s::text IS NULL OR pipeline = %(pipeline)s)
    AND (%(owner)s::text IS NULL OR owner = %(owner)s)
    AND (%(name)s::text IS NULL OR name = %(name)s)
    ORDER BY no DESC LIMIT %(limit)s
) AS r
{run_sums}
ORDER BY r.no DESC
