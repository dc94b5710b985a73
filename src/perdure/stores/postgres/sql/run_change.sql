UPDATE perdure_runs SET
    status = %(status)s, why = %(why)s, changed_at = %(now)s::bigint, ended_at = %(ended_at)s::bigint,
    settings = coalesce(%(settings)s::text, settings),
    sealed_at = CASE %(sealed)s::boolean
        WHEN true THEN coalesce(sealed_at, %(now)s::bigint) WHEN false THEN NULL ELSE sealed_at END
WHERE no = %(no)s AND status = %(seen)s
