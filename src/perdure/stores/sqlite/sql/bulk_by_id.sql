SELECT
    no, id, verb, status, filter, begun_by, reason, cursor, done, refused, begun_at, changed_at
FROM perdure_bulks WHERE id = ?
