SELECT {r.run_columns}
FROM perdure_runs AS r
{run_sums}
WHERE r.id = %(id)s AND r.owner = coalesce(%(owner)s, r.owner)
