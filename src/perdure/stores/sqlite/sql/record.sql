-- Settle one attempt. The guard is (no, token) alone; the token moves on, so that no later writer of this
-- claim can match again. Parameters by place, in the order of `record_row`.
UPDATE perdure_jobs SET
    state = ?1, ready = ?2, worker = ?3, token = token + ?4, lane = ?5, stage = ?6, isolation = ?7,
    starts = ?8, failures = ?9, waits = ?10, crashes = ?11, snoozes = ?12, probes = ?13,
    releases = ?14, waited_s = ?15, past = ?16, input_from = coalesce(?17, input_from),
    due_at = coalesce(?18, due_at), claimed_at = coalesce(?19, claimed_at), finished_at = ?20,
    updated_at = ?21, failed_reason = ?22, error_kind = ?23, error_message = ?24, label = ?25,
    result = ?26, error_code = ?27, error_detail = ?28, fingerprint = ?29,
    hard_at = CASE WHEN ?3 IS NOT NULL THEN hard_at END,
    on_lost = CASE WHEN ?3 IS NOT NULL THEN on_lost END
WHERE no = ?30 AND token = ?31
