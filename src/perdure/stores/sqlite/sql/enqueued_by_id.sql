SELECT no, id FROM perdure_jobs WHERE id = ?
