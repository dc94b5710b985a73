SELECT no, id, state, token, stage, lane, input_from FROM perdure_jobs
WHERE owner = ? AND pipeline = ? AND coalesce(run, 0) = coalesce(?, 0) AND key = ?
