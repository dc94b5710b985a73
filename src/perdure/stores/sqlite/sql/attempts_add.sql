INSERT INTO perdure_attempts (
    job, token, stage, number, life, status, state, worker, claimed_at, settled_at, elapsed_s,
    delay_s, due_at, counted, kind, message, policy, why, evidence, config_hash, settled_by
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
