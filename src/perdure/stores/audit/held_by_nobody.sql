SELECT j.id, 'is held by worker ' || j.worker ||
    CASE WHEN w.no IS NULL THEN ', which does not exist' ELSE ', whose jobs were all settled' END
FROM perdure_jobs AS j LEFT JOIN perdure_workers AS w ON w.no = j.worker
WHERE j.worker IS NOT NULL AND (w.no IS NULL OR w.settled_at IS NOT NULL)
