DELETE FROM perdure_payloads WHERE job = ANY (%(nos)s::bigint[])
