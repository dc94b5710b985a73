-- `enqueue.sql` for a job that is fair or has an estimate: to bind two more values for each of the others would
-- cost a tenth of the time.
INSERT INTO perdure_jobs (
    no, id, owner, pipeline, run, key, lane, stage, state, ready, priority,
    order_at, rank_at, enqueued_at, due_at, deadline_at, updated_at, payload, tokens, fair
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'queued', ?9, ?10, ?11, ?12, ?13, ?11, ?14, ?13, ?15, ?16, ?17)
