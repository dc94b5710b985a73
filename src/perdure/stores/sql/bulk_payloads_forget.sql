DELETE FROM perdure_bulk_payloads WHERE bulk = :bulk
