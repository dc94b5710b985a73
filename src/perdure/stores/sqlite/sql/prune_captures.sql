DELETE FROM perdure_artifacts WHERE no IN (
    SELECT no FROM perdure_artifacts WHERE expires_at <= :now ORDER BY expires_at, id LIMIT :limit
)
