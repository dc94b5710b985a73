-- Lock the failed jobs that are named (the owner's, where one is given) and the other failed jobs that have their keys, in
-- the order of numbers.
-- Of two hands that would revive jobs of one key, the second waits here, and a later statement of its own sees
-- that the key is alive.
WITH r AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(targets)s::jsonb) AS r (no bigint, token bigint)
),
named AS MATERIALIZED (
    SELECT j.* FROM r CROSS JOIN LATERAL (
        SELECT o.no, o.owner, o.pipeline, o.key FROM perdure_jobs AS o
        WHERE o.no = r.no AND o.token = r.token AND o.state = 'failed'
        AND (%(owner)s::text IS NULL OR o.owner = %(owner)s::text)
        LIMIT 1
    ) AS j
),
wanted AS MATERIALIZED (
    SELECT n.no FROM named AS n
    UNION
    SELECT s.no FROM named AS n CROSS JOIN LATERAL (
        SELECT o.no FROM perdure_jobs AS o
        WHERE o.owner = n.owner AND o.pipeline = n.pipeline AND o.key = n.key AND o.state = 'failed'
        OFFSET 0
    ) AS s
    WHERE n.key IS NOT NULL
)
SELECT j.* FROM (SELECT no FROM wanted ORDER BY no) AS w
CROSS JOIN LATERAL (
    SELECT o.no, o.token, o.owner, o.pipeline, o.key, o.id::text, o.run, o.redrive_run
    FROM perdure_jobs AS o
    WHERE o.no = w.no AND o.state = 'failed' LIMIT 1
    FOR UPDATE
) AS j
