UPDATE perdure_bulks SET
    status = %(status)s, why = %(why)s, changed_at = %(now)s::bigint,
    resumed_at = CASE WHEN %(status)s = 'running' THEN %(now)s::bigint ELSE resumed_at END,
    resumed_done = CASE WHEN %(status)s = 'running' THEN done ELSE resumed_done END
WHERE no = %(no)s AND status = %(seen)s
RETURNING
    no, id::text, verb, status, filter, begun_by, reason, cursor, done, refused, begun_at, changed_at,
    settings, run, phase, why, resumed_at, resumed_done
