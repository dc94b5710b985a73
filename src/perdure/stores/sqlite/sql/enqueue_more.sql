-- `enqueue.sql` for a job that is fair or has an estimate, a deadline, a request id or its own place in line: to bind two
-- more values for each of the others would cost a tenth of the time.
INSERT INTO perdure_jobs (
    no, id, owner, pipeline, run, key, lane, stage, state, ready, priority,
    order_at, rank_at, enqueued_at, due_at, deadline_at, updated_at, payload, tokens, fair,
    request_id, deadline_us, policies_us
)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'queued', ?9, ?10,
    ?15, ?12, ?13, ?11, ?16, ?13, ?14, ?17, ?18,
    ?19, ?20, ?21
)
