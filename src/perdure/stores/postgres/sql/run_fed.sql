-- Several may feed one run: it is fed since the first of them began, as long as the signs do not end.
-- A sealed one is fed by nobody.
UPDATE perdure_runs SET
    fed_by = %(by)s::text, fed_at = %(now)s::bigint,
    feeding_at = CASE WHEN sealed_at IS NOT NULL THEN NULL WHEN fed_at > %(silent_at)s::bigint THEN coalesce(feeding_at, %(now)s::bigint)
        ELSE %(now)s::bigint END
WHERE no = %(no)s
