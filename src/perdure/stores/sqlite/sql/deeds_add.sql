INSERT INTO perdure_audit_log (done_at, by_whom, verb, subject, reason)
VALUES (:now, :by_whom, :verb, :subject, :reason)
