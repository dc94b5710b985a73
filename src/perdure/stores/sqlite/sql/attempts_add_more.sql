-- `attempts_add.sql` for an attempt that has a code, tokens, a cost or an owner: to bind five more values for each of the
-- others would cost them time.
INSERT INTO perdure_attempts (
    job, token, stage, number, life, status, state, worker, claimed_at, settled_at, elapsed_s,
    delay_s, due_at, counted, kind, message, policy, why, evidence, config_hash, settled_by,
    code, tokens_in, tokens_out, cost_nusd, owner
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
