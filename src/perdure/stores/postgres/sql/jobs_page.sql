-- The rows of a page whose numbers are known, in the order of `job_out`.
SELECT
    j.no, j.id::text, j.owner, coalesce(l.queue, ''), j.pipeline, j.stage, j.state, j.key, j.priority, j.life,
    j.token, j.lane, j.isolation, j.ready, j.worker,
    j.starts, j.failures, j.waits, j.crashes, j.snoozes, j.probes, j.releases, j.waited_s, j.past,
    j.failed_reason, j.error_kind, j.error_message, j.label, j.payload,
    CASE WHEN j.input_from IS NULL THEN j.payload ELSE (
        SELECT c.value FROM perdure_checkpoints AS c WHERE c.job = j.no AND c.stage = j.input_from
    ) END, j.result,
    j.enqueued_at, j.due_at, j.claimed_at, j.deadline_at, j.finished_at,
    coalesce(l.category, ''), j.run, j.redrive_run, j.retries_manual, j.input_from, j.discarded_at,
    j.error_code, j.error_detail, j.fingerprint, j.updated_at,
    j.request_id, j.order_at, j.deadline_us, j.policies_us
FROM perdure_jobs AS j
LEFT JOIN perdure_lanes AS l ON l.no = j.lane
WHERE j.no = ANY (%(nos)s::bigint[])
ORDER BY j.no DESC
