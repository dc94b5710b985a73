INSERT INTO perdure_depths (lane, ready, waiting, retrying, processing, succeeded, failed, cancelled)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (lane, writer) DO UPDATE SET
    ready = ready + excluded.ready, waiting = waiting + excluded.waiting,
    retrying = retrying + excluded.retrying, processing = processing + excluded.processing,
    succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed,
    cancelled = cancelled + excluded.cancelled
