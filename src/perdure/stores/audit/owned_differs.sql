-- Each job that has an owner stands once among that owner's, as open or ended as it is and with the moment of its last
-- change; nothing else stands there. A claim moves `updated_at` and is no such change: what is in work changed last
-- between the end of its last attempt, or its coming in, and the claim.
WITH last AS (
    SELECT a.job, a.settled_at
    FROM perdure_attempts AS a
    JOIN (SELECT job, max(token) AS token FROM perdure_attempts GROUP BY job) AS t ON t.job = a.job AND t.token = a.token
)
SELECT CAST(j.id AS text), CASE
    WHEN o.job IS NULL THEN 'is missing among the jobs of its owner ' || j.owner
    ELSE 'is ' || j.state || ', updated at ' || j.updated_at || '; among the jobs of its owner ' || j.owner
        || ' it has the end ' || o.ended || ' and changed at ' || o.changed_at
    END
FROM perdure_jobs AS j
LEFT JOIN perdure_owned AS o ON o.owner = j.owner AND o.ended IN (0, 1, 2, 3) AND o.job = j.no
LEFT JOIN last AS l ON l.job = j.no
WHERE j.owner <> '' AND (
    o.job IS NULL
    OR o.ended <> CASE j.state WHEN 'succeeded' THEN 1 WHEN 'failed' THEN 2 WHEN 'cancelled' THEN 3 ELSE 0 END
    OR o.changed_at > j.updated_at
    OR o.changed_at < CASE WHEN j.state = 'processing' THEN coalesce(l.settled_at, j.enqueued_at) ELSE j.updated_at END
)
UNION ALL
SELECT 'job number ' || o.job, 'stands among the jobs of owner ' || o.owner || ' and is not one of them'
FROM perdure_owned AS o
LEFT JOIN perdure_jobs AS j ON j.no = o.job AND j.owner = o.owner
WHERE j.no IS NULL
