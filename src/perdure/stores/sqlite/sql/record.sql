-- Settle one attempt. The guard is (no, token) alone; the token moves on, so that no later writer of this
-- claim can match again. Parameters by place, in the order of `record_row`; the counters come last.
UPDATE perdure_jobs SET
    state = ?3, ready = ?4, worker = ?5, token = token + ?6, lane = ?7, stage = ?8, isolation = ?9,
    past = ?10, input_from = coalesce(?11, input_from), due_at = coalesce(?12, due_at),
    claimed_at = coalesce(?13, claimed_at), finished_at = ?14, updated_at = ?15, failed_reason = ?16,
    error_kind = ?17, error_message = ?18, label = ?19, result = ?20, error_code = ?21,
    error_detail = ?22, fingerprint = ?23, hard_at = CASE WHEN ?5 IS NOT NULL THEN hard_at END,
    on_lost = CASE WHEN ?5 IS NOT NULL THEN on_lost END, {counters_bound}
WHERE no = ?1 AND token = ?2
