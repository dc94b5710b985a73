-- Another one that feeds as well says so with its next sign.
UPDATE perdure_runs SET feeding_at = NULL, fed_at = %(now)s::bigint
WHERE no = %(no)s AND fed_by = %(by)s::text AND feeding_at IS NOT NULL
