DELETE FROM perdure_checkpoints WHERE job = ANY (%(nos)s::bigint[])
