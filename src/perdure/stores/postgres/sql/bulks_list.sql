SELECT
    no, id::text, verb, status, filter, begun_by, reason, cursor, done, refused, begun_at, changed_at
FROM perdure_bulks WHERE NOT %(running)s OR status = 'running'
ORDER BY no DESC LIMIT %(limit)s
