SELECT no, token FROM perdure_jobs WHERE worker = :worker
