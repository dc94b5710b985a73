SELECT life, payload FROM perdure_payloads WHERE job = :job ORDER BY life
