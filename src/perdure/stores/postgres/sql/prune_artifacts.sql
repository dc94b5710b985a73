DELETE FROM perdure_artifacts WHERE job = ANY (%(nos)s::bigint[])
