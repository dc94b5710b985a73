INSERT INTO perdure_bulk_payloads (bulk, key, payload)
SELECT %(bulk)s::bigint, p.key, p.payload
FROM jsonb_to_recordset(%(payloads)s::jsonb) AS p (key text, payload text)
