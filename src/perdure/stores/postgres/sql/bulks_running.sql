SELECT
    no, id::text, verb, status, filter, begun_by, reason, cursor, done, refused, begun_at, changed_at,
    settings, run, phase, why
FROM perdure_bulks WHERE status = 'running' ORDER BY no DESC LIMIT %(limit)s
