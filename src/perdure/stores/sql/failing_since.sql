SELECT claimed_at, elapsed_s FROM perdure_attempts
WHERE job = :job AND life = :life AND stage = :stage AND kind IN ({bad_kinds}) ORDER BY token LIMIT 1
