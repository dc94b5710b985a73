-- One line for each subject, in their order.
INSERT INTO perdure_audit_log (done_at, by_whom, verb, subject, reason)
SELECT %(now)s, %(by_whom)s, %(verb)s, s.subject, %(reason)s
FROM jsonb_array_elements_text(%(subjects)s::jsonb) WITH ORDINALITY AS s (subject, place)
ORDER BY s.place
