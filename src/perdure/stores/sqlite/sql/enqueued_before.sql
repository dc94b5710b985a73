SELECT no, id FROM perdure_jobs WHERE owner = ? AND pipeline = ? AND key = ?
