-- A new life for a failed job, ordered as if it were new (a fair one has its rank). Until its deadline it has as long as its
-- caller said at first; if that was nothing, what its policies give. A payload may take the place of the old one.
-- Guarded by (no, token); only a failed job has a failed_reason.
UPDATE perdure_jobs SET
    state = 'queued', ready = 1, token = token + 1, life = life + 1,
    retries_manual = retries_manual + 1, lane = :lane, stage = :stage, isolation = 0,
    input_from = :input_from, redrive_run = coalesce(:redrive_run, redrive_run),
    order_at = :now, rank_at = coalesce(:rank_at, :now - priority * :ageing_us), due_at = :now, updated_at = :now,
    finished_at = NULL, discarded_at = NULL, failed_reason = NULL, error_kind = NULL,
    error_message = NULL, error_code = NULL, error_detail = NULL, fingerprint = NULL,
    past = NULL, hard_at = NULL,
    deadline_at = :now + coalesce(deadline_us, :policies_us),
    policies_us = CASE WHEN deadline_us IS NULL THEN :policies_us END,
    starts = 0, {counters_cleared}, payload = coalesce(:payload, payload)
WHERE no = :no AND token = :token AND failed_reason IS NOT NULL
