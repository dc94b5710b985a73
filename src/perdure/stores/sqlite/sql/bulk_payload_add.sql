INSERT INTO perdure_bulk_payloads (bulk, key, payload) VALUES (?, ?, ?)
