-- How attempts have ended, each named by its job and token.
SELECT a.job, a.token, a.status
FROM jsonb_to_recordset(%(claims)s::jsonb) AS c (no bigint, token bigint)
CROSS JOIN LATERAL (
    SELECT o.job, o.token, o.status FROM perdure_attempts AS o
    WHERE o.job = c.no AND o.token = c.token LIMIT 1
) AS a
