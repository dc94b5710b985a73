SELECT run, redrive_run FROM perdure_jobs WHERE no = ?
