UPDATE perdure_access_tokens SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL
