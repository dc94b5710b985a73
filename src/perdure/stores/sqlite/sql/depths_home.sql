-- What has ended in the lanes of runs is counted in the lane of its stage that has no run: there may be thousands of
-- runs, and sums are asked for by queue, pipeline and stage. Where nothing is open; `depths_forget.sql` follows.
INSERT INTO perdure_depths (lane, succeeded, failed, cancelled)
SELECT h.no, sum(d.succeeded), sum(d.failed), sum(d.cancelled)
FROM perdure_depths AS d JOIN perdure_lanes AS l ON l.no = d.lane
JOIN perdure_lanes AS h
    ON h.pipeline = l.pipeline AND h.stage = l.stage AND h.queue = l.queue AND h.category = l.category
    AND h.run IS NULL
WHERE l.run IS NOT NULL AND d.ready = 0 AND d.waiting = 0 AND d.retrying = 0 AND d.processing = 0
GROUP BY h.no
ON CONFLICT (lane, writer) DO UPDATE SET
    succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed,
    cancelled = cancelled + excluded.cancelled
