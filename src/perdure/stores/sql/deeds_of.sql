SELECT {deed_columns} FROM perdure_audit_log WHERE subject = :subject AND no < :before ORDER BY no DESC LIMIT :limit
