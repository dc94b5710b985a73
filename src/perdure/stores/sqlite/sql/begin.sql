-- A job that its caller runs at once.
INSERT INTO perdure_jobs (
    no, id, owner, pipeline, run, key, lane, stage, state, worker, token, starts, priority,
    order_at, rank_at, enqueued_at, due_at, claimed_at, deadline_at, hard_at, on_lost,
    updated_at, payload, tokens, fair, request_id, deadline_us, policies_us
)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'processing', ?9, 1, 1, ?10,
    ?19, ?12, ?11, ?11, ?11, ?13, ?14, ?15,
    ?11, ?16, ?17, ?18, ?20, ?21, ?22
)
