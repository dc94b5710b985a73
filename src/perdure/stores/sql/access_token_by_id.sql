SELECT {access_token_columns} FROM perdure_access_tokens WHERE id = :id
