SELECT key, payload FROM perdure_bulk_payloads
WHERE bulk = :bulk AND key IN (SELECT value FROM json_each(:keys))
