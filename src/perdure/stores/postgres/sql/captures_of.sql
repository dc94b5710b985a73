-- In the order of `capture_out`. OFFSET keeps the planner from walking all captures in the order of numbers.
SELECT * FROM (
    SELECT
        a.no, a.id::text, a.job, a.token, a.stage, a.kind, a.media_type, octet_length(a.content),
        a.bytes_whole, a.saved_at, a.expires_at
    FROM perdure_artifacts AS a WHERE a.job = %(job)s OFFSET 0
) AS found ORDER BY found.no
