SELECT
    job, token, stage, number, life, status, worker, claimed_at, settled_at, elapsed_s, due_at,
    delay_s, counted, kind, message, policy, why, evidence, code, tokens_in,
    tokens_out, cost_nusd, config_hash
FROM perdure_attempts WHERE job = ? ORDER BY token
