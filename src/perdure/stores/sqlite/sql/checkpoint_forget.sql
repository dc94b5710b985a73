DELETE FROM perdure_checkpoints WHERE job = ? AND stage = ?
