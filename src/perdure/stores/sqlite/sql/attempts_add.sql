INSERT INTO perdure_attempts (
    job, token, stage, number, life, status, state, worker, claimed_at, settled_at, elapsed_s,
    delay_s, due_at, counted, kind, message, policy, why, evidence, config_hash, settled_by
)
SELECT
    value ->> 'no', value ->> 'token', value ->> 'attempt_stage', value ->> 'number',
    value ->> 'life', value ->> 'status', value ->> 'state', value ->> 'worker',
    value ->> 'claimed_at', :now, value ->> 'elapsed_s', value ->> 'delay_s',
    :now + (value ->> 'delay_us'), value ->> 'counted', value ->> 'kind', value ->> 'message',
    value ->> 'policy', value ->> 'why', value ->> 'evidence', value ->> 'config_hash', :by
FROM json_each(:records)
WHERE value ->> 'status' IS NOT NULL
