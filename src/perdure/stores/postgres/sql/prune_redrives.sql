DELETE FROM perdure_redrives WHERE job = ANY (%(nos)s::bigint[])
