SELECT {access_token_columns} FROM perdure_access_tokens WHERE scopes <> '' ORDER BY no DESC LIMIT :limit
