DELETE FROM perdure_depths
WHERE ready = 0 AND waiting = 0 AND retrying = 0 AND processing = 0 AND lane IN (
    SELECT l.no FROM perdure_lanes AS l JOIN perdure_lanes AS h
        ON h.pipeline = l.pipeline AND h.stage = l.stage AND h.queue = l.queue AND h.category = l.category
        AND h.run IS NULL
    WHERE l.run IS NOT NULL
)
