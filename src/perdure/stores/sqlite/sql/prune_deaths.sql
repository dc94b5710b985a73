INSERT INTO perdure_deaths (fingerprint, owner, pipeline, stage, reason, kind, code, letters)
SELECT coalesce(fingerprint, ''), owner, pipeline, stage, failed_reason, coalesce(error_kind, ''),
    coalesce(error_code, ''), -count(*)
FROM perdure_jobs
WHERE no IN (SELECT value FROM json_each(:nos)) AND failed_reason IS NOT NULL AND discarded_at IS NULL
GROUP BY 1, 2, 3, 4, 5, 6, 7
ON CONFLICT (fingerprint, owner, pipeline, stage, reason, kind, code, writer) DO UPDATE SET letters = letters + excluded.letters
