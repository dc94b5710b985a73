INSERT INTO perdure_depths (lane, succeeded, failed, cancelled)
SELECT lane, -sum(state = 'succeeded'), -sum(state = 'failed'), -sum(state = 'cancelled')
FROM perdure_jobs WHERE no IN (SELECT value FROM json_each(:nos)) GROUP BY lane
ON CONFLICT (lane, writer) DO UPDATE SET
    succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed,
    cancelled = cancelled + excluded.cancelled
