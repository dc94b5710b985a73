-- Settle attempts: a JSON array of records in, the numbers of the accepted ones out. The guard is
-- (no, token) alone; the token moves on, so that no later writer of this claim can match again.
UPDATE perdure_jobs AS j SET
    state = r.state,
    ready = CASE WHEN r.state = 'queued' THEN r.delay_us = 0 END,
    worker = CASE WHEN r.reclaim THEN :by END,
    token = j.token + 1 + r.reclaim,
    lane = r.lane, stage = r.stage, isolation = r.isolation,
    starts = r.starts + r.reclaim, failures = r.failures, waits = r.waits, crashes = r.crashes,
    snoozes = r.snoozes, probes = r.probes, releases = r.releases, waited_s = r.waited_s,
    past = r.past,
    input_from = coalesce(r.checkpoint_stage, j.input_from),
    due_at = CASE WHEN r.delay_us IS NULL THEN j.due_at ELSE :now + r.delay_us END,
    claimed_at = CASE WHEN r.reclaim THEN :now ELSE j.claimed_at END,
    finished_at = CASE WHEN r.state IN ('succeeded', 'failed', 'cancelled') THEN :now END,
    updated_at = :now,
    failed_reason = r.failed_reason, error_kind = r.error_kind, error_message = r.error_message,
    label = r.label, result = r.result
FROM (
    SELECT
        value ->> 'no' AS no, value ->> 'token' AS token, value ->> 'state' AS state,
        value ->> 'delay_us' AS delay_us, value ->> 'reclaim' AS reclaim, value ->> 'lane' AS lane,
        value ->> 'stage' AS stage, value ->> 'isolation' AS isolation,
        value ->> 'starts' AS starts, value ->> 'failures' AS failures,
        value ->> 'waits' AS waits, value ->> 'crashes' AS crashes,
        value ->> 'snoozes' AS snoozes, value ->> 'probes' AS probes,
        value ->> 'releases' AS releases, value ->> 'waited_s' AS waited_s,
        value ->> 'past' AS past, value ->> 'checkpoint_stage' AS checkpoint_stage,
        value ->> 'failed_reason' AS failed_reason, value ->> 'error_kind' AS error_kind,
        value ->> 'error_message' AS error_message, value ->> 'label' AS label,
        value ->> 'result' AS result
    FROM json_each(:records)
) AS r
WHERE j.no = r.no AND j.token = r.token
RETURNING no
