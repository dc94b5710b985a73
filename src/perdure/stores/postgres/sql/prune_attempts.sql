DELETE FROM perdure_attempts WHERE job = ANY (%(nos)s::bigint[])
