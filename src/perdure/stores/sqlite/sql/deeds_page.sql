SELECT no, done_at, by_whom, verb, subject, reason FROM perdure_audit_log
WHERE no < :before ORDER BY no DESC LIMIT :limit
