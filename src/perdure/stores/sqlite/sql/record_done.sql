-- `record.sql` for a job that has succeeded with nothing counted, in its last stage: with fewer columns, and so fewer
-- indexes to look at, it takes little more than half of the time. What a hand-over left is cleared here, too.
UPDATE perdure_jobs SET
    state = 'succeeded', ready = NULL, worker = NULL, token = token + 1, lane = ?1, isolation = 0,
    {counters_cleared},
    past = NULL, finished_at = ?2, updated_at = ?2, error_kind = NULL, error_message = NULL,
    error_code = NULL, error_detail = NULL, fingerprint = NULL,
    label = ?3, result = ?4, hard_at = NULL, on_lost = NULL
WHERE no = ?5 AND token = ?6
