-- As `captures_of.sql`, with the content last.
SELECT
    a.no, a.id::text, a.job, a.token, a.stage, a.kind, a.media_type, octet_length(a.content),
    a.bytes_whole, a.saved_at, a.expires_at, a.content
FROM perdure_artifacts AS a
CROSS JOIN LATERAL (SELECT j.owner FROM perdure_jobs AS j WHERE j.no = a.job LIMIT 1) AS j
WHERE a.id = %(id)s::uuid AND (%(owner)s::text IS NULL OR j.owner = %(owner)s)
