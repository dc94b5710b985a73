-- Of these jobs, the fair ones and their owners.
SELECT no, owner FROM perdure_jobs WHERE no = ANY (%(nos)s::bigint[]) AND fair
