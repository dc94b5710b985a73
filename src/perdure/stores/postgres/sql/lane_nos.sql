SELECT no FROM perdure_lanes WHERE no = ANY (%(nos)s::bigint[])
