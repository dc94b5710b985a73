DELETE FROM perdure_artifacts WHERE no = ANY (ARRAY(
    SELECT no FROM perdure_artifacts WHERE expires_at <= %(now)s::bigint
    ORDER BY expires_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
))
