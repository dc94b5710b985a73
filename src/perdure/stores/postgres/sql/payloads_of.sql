SELECT life, payload FROM perdure_payloads WHERE job = %(job)s ORDER BY life
