-- What was put aside stands beside the attempt that it came from.
SELECT coalesce(CAST(j.id AS text), 'job number ' || f.job),
    'has capture ' || CAST(f.id AS text) || ' of attempt ' || f.token || ' and no such '
    || CASE WHEN j.no IS NULL THEN 'job' ELSE 'attempt' END
FROM perdure_artifacts AS f
LEFT JOIN perdure_jobs AS j ON j.no = f.job
LEFT JOIN perdure_attempts AS a ON a.job = f.job AND a.token = f.token
WHERE j.no IS NULL OR a.job IS NULL
