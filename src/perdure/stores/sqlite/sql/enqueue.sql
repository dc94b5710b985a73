-- One JSON array of jobs in; the rows that were new come back. A job whose key is taken is left out
-- before it is numbered, so that numbers have no gaps and the audit can tell a row that vanished.
INSERT INTO perdure_jobs (
    id, owner, pipeline, key, lane, stage, state, ready, priority,
    order_at, rank_at, enqueued_at, due_at, deadline_at, updated_at, payload
)
SELECT
    r.value ->> 'id', r.value ->> 'owner', r.value ->> 'pipeline', r.value ->> 'key',
    r.value ->> 'lane', r.value ->> 'stage', 'queued', (r.value ->> 'due_at') <= :now,
    r.value ->> 'priority', r.value ->> 'due_at',
    (r.value ->> 'due_at') - (r.value ->> 'priority') * :ageing_us,
    :now, r.value ->> 'due_at', r.value ->> 'deadline_at', :now, r.value ->> 'payload'
FROM json_each(:jobs) AS r
WHERE NOT EXISTS (SELECT 1 FROM perdure_jobs AS j WHERE j.id = r.value ->> 'id')
AND (r.value ->> 'key' IS NULL OR NOT EXISTS (
    SELECT 1 FROM perdure_jobs AS j
    WHERE j.owner = r.value ->> 'owner' AND j.pipeline = r.value ->> 'pipeline'
    AND j.key = r.value ->> 'key'
))
RETURNING no, id
