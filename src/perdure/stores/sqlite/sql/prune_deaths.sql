INSERT INTO perdure_deaths (owner, fingerprint, pipeline, stage, reason, kind, code, letters)
SELECT w.owner, coalesce(j.fingerprint, ''), j.pipeline, j.stage, j.failed_reason, coalesce(j.error_kind, ''),
    coalesce(j.error_code, ''), -count(*)
FROM perdure_jobs AS j JOIN (
    SELECT no, '' AS owner FROM perdure_jobs WHERE no IN (SELECT value FROM json_each(:nos))
    UNION
    SELECT no, owner FROM perdure_jobs WHERE no IN (SELECT value FROM json_each(:nos))
) AS w ON w.no = j.no
WHERE j.failed_reason IS NOT NULL AND j.discarded_at IS NULL
GROUP BY 1, 2, 3, 4, 5, 6, 7
ON CONFLICT (owner, fingerprint, pipeline, stage, reason, kind, code, writer) DO UPDATE SET
    letters = letters + excluded.letters
