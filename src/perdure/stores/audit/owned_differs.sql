-- Each job that has an owner stands once among that owner's, as failed or not, and its attempts name the owner; nothing
-- else stands there. Its last change is the end of an attempt or stands with it; a claim, which moves `updated_at`, is
-- none. A clock that was set back between two changes is no damage.
WITH last AS (
    SELECT a.job, a.settled_at
    FROM perdure_attempts AS a
    JOIN (SELECT job, max(token) AS token FROM perdure_attempts GROUP BY job) AS t ON t.job = a.job AND t.token = a.token
)
SELECT CAST(j.id AS text), CASE
    WHEN o.job IS NULL THEN 'is missing among the jobs of its owner ' || j.owner
    ELSE 'is ' || j.state || ', updated at ' || j.updated_at || '; among the jobs of its owner ' || j.owner || ' it has '
        || CASE WHEN o.failed THEN '' ELSE 'not ' END || 'failed and changed at ' || o.changed_at
    END
FROM perdure_jobs AS j
LEFT JOIN perdure_owned AS o ON o.owner = j.owner AND o.job = j.no
LEFT JOIN last AS l ON l.job = j.no
WHERE j.owner <> '' AND (
    o.job IS NULL
    OR o.failed <> (j.state = 'failed')
    OR (o.failed AND o.changed_at NOT IN (j.finished_at, coalesce(j.discarded_at, j.finished_at)))
    OR (j.life = 1 AND o.changed_at NOT IN (j.enqueued_at, j.updated_at)
        AND (o.changed_at < j.enqueued_at OR o.changed_at > j.updated_at))
    OR (j.state <> 'processing' AND j.updated_at NOT IN (o.changed_at, coalesce(l.settled_at, o.changed_at)))
)
UNION ALL
SELECT 'job number ' || o.job, 'stands among the jobs of owner ' || o.owner || ' and is not one of them'
FROM perdure_owned AS o
LEFT JOIN perdure_jobs AS j ON j.no = o.job AND j.owner = o.owner
WHERE j.no IS NULL
UNION ALL
SELECT CAST(j.id AS text), 'has an attempt that names the owner ' || coalesce(a.owner, 'nobody') || ', not ' || j.owner
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
WHERE coalesce(a.owner, '') <> j.owner
