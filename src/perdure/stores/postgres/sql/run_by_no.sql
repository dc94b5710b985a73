SELECT {r.run_columns}
FROM perdure_runs AS r
{run_sums}
WHERE r.no = %(no)s
