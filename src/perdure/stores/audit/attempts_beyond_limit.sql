-- An attempt says in words by which limit it was measured. None that reached it may have been followed by more:
-- failures and crashes end a job with the last one allowed, waits with the first one too many.
WITH handed_over AS (
    SELECT job, life, max(token) AS token FROM perdure_attempts
    WHERE status = 'handed_over' GROUP BY job, life
),
limits AS (
    SELECT 'failures' AS kind, '%; attempt % of ' AS words, ' failed%' AS ending, 0 AS more
    UNION ALL SELECT 'crashes', '%, crash % of ', '; it will run%', 0
    UNION ALL SELECT 'waits', '%, wait % of ', '"%', 1
    UNION ALL SELECT 'waits', '%, wait % of ', ' %', 1
    UNION ALL SELECT 'waits', '%, wait % of ', ',%', 1
    UNION ALL SELECT 'waits', '%, wait % of ', ';%', 1
),
counted AS (
    SELECT a.job, a.life, a.stage, a.state, a.why, k.kind, k.words, k.ending, k.more,
        row_number() OVER (
            PARTITION BY a.job, a.life, a.stage, k.kind, k.ending ORDER BY a.token
        ) AS place
    FROM perdure_attempts AS a
    JOIN limits AS k ON a.counted LIKE '%' || k.kind || '%'
    LEFT JOIN handed_over AS h ON h.job = a.job AND h.life = a.life
    WHERE a.token > coalesce(h.token, 0)
)
SELECT CAST(j.id AS text), 'went on after ' || c.place || ' ' || c.kind || ' in stage ' || c.stage
    || ' of life ' || c.life || ', ' || l.place || ' are allowed'
FROM counted AS c
JOIN counted AS l
    ON l.job = c.job AND l.life = c.life AND l.stage = c.stage AND l.kind = c.kind
    AND l.ending = c.ending AND l.place + c.more <= c.place
JOIN perdure_jobs AS j ON j.no = c.job
WHERE c.state IN ('queued', 'processing') AND c.why LIKE c.words || l.place || c.ending
