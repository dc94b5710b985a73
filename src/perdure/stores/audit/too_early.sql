-- No attempt began before the time that the attempt before it was given, unless a person has asked for it in between.
SELECT j.id, 'attempt ' || n.number || ' of stage ' || n.stage || ' began '
    || ((a.due_at - n.claimed_at) / 1000) || ' ms before it was due'
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
JOIN perdure_attempts AS n ON n.job = a.job AND n.token = (
    SELECT min(m.token) FROM perdure_attempts AS m WHERE m.job = a.job AND m.token > a.token
)
WHERE a.due_at IS NOT NULL AND n.claimed_at < a.due_at AND n.life = a.life
AND NOT EXISTS (
    SELECT 1 FROM perdure_audit_log AS d
    WHERE d.subject = CAST(j.id AS text) AND d.verb = 'run job now'
    AND d.done_at >= a.settled_at AND d.done_at <= n.claimed_at
)
