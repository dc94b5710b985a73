DELETE FROM perdure_access_tokens WHERE scopes = '' AND expires_at <= :now
