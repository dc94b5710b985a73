UPDATE perdure_runs SET sealed_at = coalesce(sealed_at, %(now)s::bigint) WHERE no = %(no)s RETURNING id::text
