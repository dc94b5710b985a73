SELECT life, payload FROM perdure_payloads WHERE job = ? ORDER BY life
