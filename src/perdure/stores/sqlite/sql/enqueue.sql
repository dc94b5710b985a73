INSERT INTO perdure_jobs (
    no, id, owner, pipeline, run, key, lane, stage, state, ready, priority,
    order_at, rank_at, enqueued_at, due_at, updated_at, payload
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'queued', ?9, ?10, ?11, ?12, ?13, ?11, ?13, ?14)
