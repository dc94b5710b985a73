INSERT INTO perdure_artifacts (
    id, job, token, stage, kind, media_type, content, bytes_whole, saved_at, expires_at
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
