UPDATE perdure_bulks SET
    cursor = %(cursor)s, done = done + %(done)s, refused = refused + %(refused)s,
    status = %(status)s, phase = %(phase)s, why = %(why)s, changed_at = %(now)s
WHERE no = %(no)s AND status = 'running' AND cursor IS NOT DISTINCT FROM %(seen_cursor)s::bigint
RETURNING {bulk_columns}
