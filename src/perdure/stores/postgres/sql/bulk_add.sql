INSERT INTO perdure_bulks (
    id, verb, status, filter, begun_by, reason, begun_at, changed_at, settings, run, phase
)
VALUES (
    %(id)s, %(verb)s, 'running', %(filter)s, %(by_whom)s, %(reason)s, %(now)s, %(now)s, %(settings)s,
    %(run)s, %(phase)s
)
ON CONFLICT (id) DO NOTHING
