INSERT INTO perdure_access_tokens (id, hash, name, owner, scopes, created_at, expires_at)
VALUES (:id, :hash, :name, :owner, :scopes, :now, :expires_at)
ON CONFLICT (id) DO NOTHING
