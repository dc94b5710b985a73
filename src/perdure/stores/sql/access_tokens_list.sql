SELECT {access_token_columns} FROM perdure_access_tokens ORDER BY no DESC LIMIT :limit
