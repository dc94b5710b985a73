-- OFFSET keeps the planner from walking all captures in the order of numbers.
SELECT * FROM (
    SELECT {capture_columns} FROM perdure_artifacts WHERE job = %(job)s OFFSET 0
) AS found ORDER BY found.no
