SELECT id FROM perdure_jobs WHERE no = ? AND run = ?
