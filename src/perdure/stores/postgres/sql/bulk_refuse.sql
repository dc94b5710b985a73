INSERT INTO perdure_bulk_refusals (bulk, job, why)
SELECT %(no)s::bigint, r.no, r.why
FROM jsonb_to_recordset(%(refusals)s::jsonb) AS r (no bigint, why text)
ON CONFLICT (bulk, job) DO NOTHING
