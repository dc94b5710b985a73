-- In the order of `capture_out`; the length of a content is known without reading it.
SELECT
    no, id, job, token, stage, kind, media_type, length(content), bytes_whole, saved_at, expires_at
FROM perdure_artifacts WHERE job = ? ORDER BY no
