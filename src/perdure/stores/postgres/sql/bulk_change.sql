UPDATE perdure_bulks SET
    status = %(status)s, why = %(why)s, changed_at = %(now)s::bigint
WHERE no = %(no)s AND status = %(seen)s
RETURNING
    no, id::text, verb, status, filter, begun_by, reason, cursor, done, refused, begun_at, changed_at,
    settings, run, phase, why
