UPDATE perdure_runs SET
    status = %(status)s, changed_at = %(now)s::bigint,
    ended_at = CASE WHEN %(ended)s THEN %(now)s::bigint END
WHERE no = %(no)s AND status = %(seen)s
RETURNING id::text
