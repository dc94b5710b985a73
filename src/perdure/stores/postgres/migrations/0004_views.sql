-- compat_min: 4
-- Names that other systems know: what happened to a job as it happens, jobs as the converter calls their fields, and samples
-- and their stages as the datasets do. Views alone: nothing is stored, and nothing that is written costs more.

-- What happened to each job, one line an event, with readable moments; what is in work is told before it ends.
CREATE OR REPLACE VIEW perdure_job_events AS
SELECT j.id AS job_id, j.enqueued_at AS at_us, to_timestamp(j.enqueued_at / 1e6) AS at,
    'queued' AS event, NULL::text AS stage, NULL::integer AS attempt, NULL::text AS kind, NULL::text AS detail,
    NULL::text AS code
FROM perdure_jobs AS j
UNION ALL
SELECT j.id, a.claimed_at, to_timestamp(a.claimed_at / 1e6),
    'processing', a.stage, a.number, NULL, NULL, NULL
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
UNION ALL
SELECT j.id, j.claimed_at, to_timestamp(j.claimed_at / 1e6),
    'processing', j.stage, j.starts, NULL, NULL, NULL
FROM perdure_jobs AS j
WHERE j.state = 'processing'
UNION ALL
SELECT j.id, a.settled_at, to_timestamp(a.settled_at / 1e6),
    CASE WHEN a.status = 'retrying' THEN 'retry'
        WHEN a.status = 'success' AND a.state = 'succeeded' THEN 'complete'
        WHEN a.status = 'success' THEN 'advanced'
        WHEN a.status = 'failed' AND j.failed_reason = 'expired' AND a.life = j.life THEN 'expired'
        ELSE a.status END,
    a.stage, a.number, a.kind, a.why, a.code
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
UNION ALL
SELECT j.id, j.finished_at, to_timestamp(j.finished_at / 1e6),
    CASE WHEN j.failed_reason = 'expired' THEN 'expired' ELSE j.state END,
    j.stage, NULL, j.error_kind, NULL, j.error_code
FROM perdure_jobs AS j
WHERE j.finished_at IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM perdure_attempts AS a
    WHERE a.job = j.no AND a.life = j.life AND a.state = j.state
)
UNION ALL
SELECT j.id, d.done_at, to_timestamp(d.done_at / 1e6),
    d.verb, NULL, NULL, NULL, d.reason, NULL
FROM perdure_audit_log AS d JOIN perdure_jobs AS j ON d.subject = j.id::text;

-- Jobs as the converter calls them. A lease is the worker's, and a caller's lasts until its job must have ended. Attempts
-- are those of this life; a job that was driven again was queued when it was.
CREATE VIEW perdure_converter_jobs AS
SELECT j.no AS job, j.id, j.owner, j.pipeline, j.stage,
    CASE WHEN j.state = 'succeeded' THEN 'complete' ELSE j.state END AS status,
    (SELECT count(*) FROM perdure_attempts AS a WHERE a.job = j.no AND a.life = j.life)
        + CASE WHEN j.state = 'processing' THEN 1 ELSE 0 END AS "attemptCount",
    to_timestamp(j.claimed_at / 1e6) AS "lastAttemptAt",
    CASE WHEN j.ready = 0 THEN to_timestamp(j.due_at / 1e6) END AS "retryAfter",
    w.name AS leased_by,
    to_timestamp(coalesce(CASE WHEN w.no IS NOT NULL THEN j.hard_at END, w.beat_at + w.ttl_us) / 1e6) AS lease_expires_at,
    to_timestamp(j.enqueued_at / 1e6) AS created_at,
    to_timestamp((CASE WHEN j.life = 1 THEN j.enqueued_at ELSE j.order_at END) / 1e6) AS "queuedAt",
    to_timestamp(coalesce(
        (SELECT min(a.claimed_at) FROM perdure_attempts AS a WHERE a.job = j.no), j.claimed_at
    ) / 1e6) AS started_at,
    to_timestamp(j.updated_at / 1e6) AS updated_at,
    j.error_code AS "errorCode", j.error_message AS "errorMessage", j.failed_reason AS "failedReason",
    CASE WHEN j.failed_reason IS NOT NULL AND j.discarded_at IS NULL THEN 1::bigint ELSE 0 END AS "deadLetter"
FROM perdure_jobs AS j LEFT JOIN perdure_workers AS w ON w.no = j.worker;

-- Jobs as samples of a dataset. What has failed is in the DLQ until it is driven again, or discarded.
CREATE VIEW perdure_dataset_samples AS
SELECT j.id, j.no AS job, j.pipeline AS pipeline_id, r.id AS run_id, j.key,
    CASE WHEN j.state = 'queued' THEN 'pending'
        WHEN j.state = 'failed' AND j.discarded_at IS NULL THEN 'dlq'
        ELSE j.state END AS status,
    CASE WHEN j.state = 'failed' AND j.discarded_at IS NULL THEN json_build_object(
        'stage', j.stage, 'error', coalesce(j.error_detail, j.error_message, ''),
        'last_attempt_at', to_timestamp(j.claimed_at / 1e6)
    ) END AS dlq_reason,
    to_timestamp(j.enqueued_at / 1e6) AS created_at,
    to_timestamp(j.updated_at / 1e6) AS updated_at
FROM perdure_jobs AS j LEFT JOIN perdure_runs AS r ON r.no = j.run;

-- Every try of a stage, whatever ended it: what is tried again is retrying.
CREATE VIEW perdure_dataset_stages_applied AS
SELECT j.id AS sample_id, j.no AS job, a.stage AS stage_name, a.config_hash AS stage_config_hash, a.life, a.number AS attempt,
    CASE WHEN a.status IN ('success', 'failed', 'cancelled') THEN a.status ELSE 'retrying' END AS status,
    CASE WHEN a.status <> 'success' THEN coalesce(nullif(a.message, ''), a.kind) END AS error_message,
    to_timestamp(a.settled_at / 1e6) AS applied_at
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job;
