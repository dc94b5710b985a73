-- In the order of `capture_out`, then the content; for the owner of its job, or for an operator.
SELECT
    a.no, a.id, a.job, a.token, a.stage, a.kind, a.media_type, length(a.content), a.bytes_whole,
    a.saved_at, a.expires_at, a.content
FROM perdure_artifacts AS a LEFT JOIN perdure_jobs AS j ON j.no = a.job
WHERE a.id = :id AND (:owner IS NULL OR j.owner = :owner)
