-- Nothing ends before it begins, unless the store's clock was set back in between.
SELECT CAST(id AS text), 'came to its end ' || ((enqueued_at - finished_at) / 1000) || ' ms before it came in'
FROM perdure_jobs WHERE finished_at < enqueued_at
UNION ALL
SELECT CAST(j.id AS text), 'attempt ' || a.number || ' of stage ' || a.stage || ' ended '
    || ((a.claimed_at - a.settled_at) / 1000) || ' ms before it began'
FROM perdure_attempts AS a JOIN perdure_jobs AS j ON j.no = a.job
WHERE a.settled_at < a.claimed_at
