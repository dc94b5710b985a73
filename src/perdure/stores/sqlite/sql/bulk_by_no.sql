SELECT
    no, id, verb, status, filter, begun_by, reason, cursor, done, refused, begun_at, changed_at,
    settings, run, phase, why
FROM perdure_bulks WHERE no = ?
