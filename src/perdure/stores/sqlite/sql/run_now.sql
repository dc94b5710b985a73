-- A job that waits for its time is due now. It stands in line from now on, if it was to do so later, and has as long until
-- its deadline; its place in a fair line is kept. Guarded by (no, token); only what waits for its time is not ready.
UPDATE perdure_jobs SET
    ready = 1, token = token + 1, due_at = :now, updated_at = :now, order_at = min(order_at, :now),
    rank_at = rank_at - CASE WHEN fair THEN 0 ELSE max(order_at - :now, 0) END,
    deadline_at = min(deadline_at, :now + coalesce(deadline_us, policies_us))
WHERE no = :no AND token = :token AND ready = 0 AND (:owner IS NULL OR owner = :owner)
RETURNING lane, error_kind
