-- What has ended in the lanes of runs is counted in the lane of its stage that has no run: there may be thousands of
-- runs, and sums are asked for by queue, pipeline and stage. Where nothing is open; rows in use meanwhile stay.
WITH homes AS MATERIALIZED (
    SELECT l.no, h.no AS home
    FROM perdure_lanes AS l JOIN perdure_lanes AS h
        ON h.pipeline = l.pipeline AND h.stage = l.stage AND h.queue = l.queue AND h.category = l.category
    WHERE l.run IS NOT NULL AND h.run IS NULL
),
done AS MATERIALIZED (
    SELECT d.lane, m.home
    FROM perdure_depths AS d JOIN homes AS m ON m.no = d.lane
    WHERE d.writer = 0 AND d.ready = 0 AND d.waiting = 0 AND d.retrying = 0 AND d.processing = 0
    LIMIT 10000 FOR UPDATE OF d SKIP LOCKED
),
gone AS (
    DELETE FROM perdure_depths AS d USING done AS o WHERE d.lane = o.lane AND d.writer = 0
    RETURNING o.home, d.succeeded, d.failed, d.cancelled
),
added AS (
    INSERT INTO perdure_depths AS t (lane, writer, succeeded, failed, cancelled)
    SELECT home, 0, sum(succeeded), sum(failed), sum(cancelled) FROM gone GROUP BY home ORDER BY home
    ON CONFLICT (lane, writer) DO UPDATE SET
        succeeded = t.succeeded + excluded.succeeded, failed = t.failed + excluded.failed,
        cancelled = t.cancelled + excluded.cancelled
)
SELECT count(*) FROM gone
