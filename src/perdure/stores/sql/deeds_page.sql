SELECT {deed_columns} FROM perdure_audit_log WHERE no < :before ORDER BY no DESC LIMIT :limit
