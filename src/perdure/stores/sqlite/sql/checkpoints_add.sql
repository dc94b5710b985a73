INSERT INTO perdure_checkpoints (job, stage, token, saved_at, value) VALUES (?, ?, ?, ?, ?)
