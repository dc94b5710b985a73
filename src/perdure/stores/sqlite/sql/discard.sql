-- A dead letter is dealt with; it stays failed. Guarded by (no, token); only a failed job has a failed_reason.
UPDATE perdure_jobs SET discarded_at = :now, token = token + 1, updated_at = :now
WHERE no = :no AND token = :token AND failed_reason IS NOT NULL AND discarded_at IS NULL
AND (:owner IS NULL OR owner = :owner)
RETURNING no, id, owner, pipeline, stage, state, NULL, token, run, fingerprint, owner, pipeline, stage, failed_reason,
    error_kind, error_code
